"""The compressor."""
