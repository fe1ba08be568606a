"""The subcommands of `aclearn`."""
