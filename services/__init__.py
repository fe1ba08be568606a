"""The roles as processes: loops that receive, call pure steps, and send."""
