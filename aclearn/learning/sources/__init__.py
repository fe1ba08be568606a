"""Where a trainer's batches come from."""
