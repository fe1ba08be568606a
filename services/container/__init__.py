"""Roles in containers."""
