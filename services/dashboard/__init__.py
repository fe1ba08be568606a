"""`aclearn dashboard`: the runs of a folder in a browser."""
