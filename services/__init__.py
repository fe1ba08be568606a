"""The roles as processes: loops that receive, call a pure step function, and send."""
