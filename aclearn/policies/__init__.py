"""Policies: architectures as plain data (free of torch); `network` builds the torch module."""

from __future__ import annotations

from aclearn.policies.architecture import Architecture, Convolution, ResidualSection
from aclearn.policies.presets import describe_architecture

__all__ = [
    "Architecture",
    "Convolution",
    "ResidualSection",
    "describe_architecture",
]
