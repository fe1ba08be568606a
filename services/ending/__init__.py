"""The end of a run: what the user reads, and learning that no checkpoint has."""
