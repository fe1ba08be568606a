"""Episodes played with a saved policy."""
