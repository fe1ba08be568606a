"""The contract of a group of ranks, and a rank that is alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor
from typing_extensions import override


class Group(Protocol):
    """N ranks that exchange tensors; each calls the same methods in the same order.

    Everything that ranks exchange is made of `gather` (`aclearn.learning.ranks.exchange`), so that
    every kind of group adds in order of rank and gives the same bits.

    Attributes:
        rank: of this process, from 0.
        size: number of ranks.
    """

    rank: int
    size: int

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, in order of rank; all have the shape and dtype of this one.

        Raises:
            RankLost: another rank has ended, or has not answered in time.
        """
        ...

    def hurry(self, within_s: float) -> None:
        """Wait at most so long for the other ranks from now on, also in an exchange that runs."""
        return

    def watch(self, meanwhile: Callable[[], object]) -> None:
        """Call `meanwhile` from time to time while other ranks are awaited."""
        return

    def close(self) -> None:
        """Leave the group; the others lose this rank at their next exchange."""
        return


class Alone(Group):
    """The one rank of a run with one trainer process: exchanges nothing."""

    rank, size = 0, 1

    @override
    def gather(self, tensor: Tensor) -> list[Tensor]:
        return [tensor]


ALONE = Alone()
