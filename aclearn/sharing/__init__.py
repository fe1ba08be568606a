"""Weights in memory that several processes map: nobody sends them, readers copy them."""

from aclearn.sharing.board import BoardReader, WeightBoard
from aclearn.sharing.door import Door, knock
from aclearn.sharing.memory import HostMemory, OpenMemory, SharedMemory

__all__ = [
    "BoardReader",
    "Door",
    "HostMemory",
    "OpenMemory",
    "SharedMemory",
    "WeightBoard",
    "knock",
]
