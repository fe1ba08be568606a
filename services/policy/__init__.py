"""A policy at a role: where it comes from, and how it is kept new."""
