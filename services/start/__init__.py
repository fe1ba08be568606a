"""Checks and folders before a run or a role starts."""
