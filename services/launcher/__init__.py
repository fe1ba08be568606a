"""A run on one machine: its processes, or all roles in lock-step."""
