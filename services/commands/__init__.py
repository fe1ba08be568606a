"""The commands beside training: top, profile, compress, export."""
