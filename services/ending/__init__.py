"""The end of a run: its closing words, and learning that no checkpoint has."""
