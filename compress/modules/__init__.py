"""Compression of torch modules of the user's own."""
