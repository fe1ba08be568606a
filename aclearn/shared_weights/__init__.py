"""Weights in memory that several processes map: nobody sends them, readers copy them."""

from __future__ import annotations

from aclearn.shared_weights.fd_server import Door, knock
from aclearn.shared_weights.memory import HostMemory, OpenMemory, SharedMemory
from aclearn.shared_weights.seqlock_buffer import BoardReader, WeightBoard

__all__ = [
    "BoardReader",
    "Door",
    "HostMemory",
    "OpenMemory",
    "SharedMemory",
    "WeightBoard",
    "knock",
]
