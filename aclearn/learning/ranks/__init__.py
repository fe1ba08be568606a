"""Ranks: trainer processes that learn as one, and what they exchange."""

from __future__ import annotations

from aclearn.learning.ranks.exchange import (
    add_up,
    average,
    gather_bytes,
    joined_moments,
    least,
)
from aclearn.learning.ranks.group import ALONE, Group
from aclearn.learning.ranks.lockstep import LockstepRanks

__all__ = [
    "ALONE",
    "Group",
    "LockstepRanks",
    "add_up",
    "average",
    "gather_bytes",
    "joined_moments",
    "least",
]
