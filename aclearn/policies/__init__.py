"""Policies: architectures as plain data (free of torch); `network` builds the torch module."""

from aclearn.policies.flat import Shapes, flat_size, split_flat
from aclearn.policies.spec import (
    ARCHITECTURES,
    Architecture,
    Convolution,
    ResidualSection,
    describe_architecture,
    refuse_recurrence,
)
from aclearn.policies.version import PolicyVersion

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Convolution",
    "PolicyVersion",
    "ResidualSection",
    "Shapes",
    "describe_architecture",
    "flat_size",
    "refuse_recurrence",
    "split_flat",
]
