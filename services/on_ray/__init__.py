"""Processes of ours on the nodes of a Ray cluster: Ray places them, ZeroMQ carries their data."""
