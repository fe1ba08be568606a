"""Evaluation of saved policies."""
