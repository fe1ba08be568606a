"""Simulated annealing over worker counts."""
