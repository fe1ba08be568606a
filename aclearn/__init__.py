"""aclearn: reinforcement learning with separate processes that talk over ZeroMQ queues."""

__version__ = "0.1.0"
