"""The monitor."""
