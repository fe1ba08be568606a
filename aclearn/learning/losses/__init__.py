"""Losses: sums over the valid steps of a batch, and their metrics."""
