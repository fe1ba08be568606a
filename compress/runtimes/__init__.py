"""Runtimes that execute artifacts."""
