"""The predictor."""
