"""The actor."""
