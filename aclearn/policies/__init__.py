"""Policies: architectures as plain data (free of torch); `network` builds the torch module."""

from __future__ import annotations

from aclearn.policies.architecture import Architecture
from aclearn.policies.layers import Layer
from aclearn.policies.presets import build_architecture, describe_architecture
from aclearn.types import Convolution, ResidualSection

__all__ = [
    "Architecture",
    "Convolution",
    "Layer",
    "ResidualSection",
    "build_architecture",
    "describe_architecture",
]
