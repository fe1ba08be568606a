"""A search for hyper-parameters: Optuna proposes values, an engine trains runs with them."""
