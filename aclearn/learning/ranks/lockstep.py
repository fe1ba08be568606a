"""Ranks in one process that take turns, so that a seed decides all they do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from typing_extensions import override

from aclearn.errors import RankLost
from aclearn.learning.ranks.group import Group

#: A turn is a part of a role's step; one that takes longer hangs.
_TURN_WITHIN_S = 600.0


class LockstepRanks:
    """Runs a function for each rank at a time; they may exchange tensors.

    Every rank has a thread of its own, of which one runs at any moment: rank 0 until it exchanges
    or ends, then rank 1, and so on, and rank 0 again once all have given their tensors.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._go = [threading.Semaphore(0) for _ in range(size)]
        self._back = threading.Semaphore(0)
        self._functions: dict[int, Callable[[], Any]] = {}
        self._results: dict[int, Any] = {}
        self._errors: dict[int, BaseException] = {}
        self._given: dict[int, Tensor] = {}
        self._gathered: list[Tensor] | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(rank,), name=f"rank-{rank}", daemon=True)
            for rank in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def group(self, rank: int) -> Group:
        """The group as that rank sees it, for use in `run`."""
        return _LockstepGroup(self, rank)

    def run(self, functions: Mapping[int, Callable[[], Any]]) -> dict[int, Any]:
        """The results of a function for each rank, run in turns.

        Raises:
            RankLost: a rank gave a tensor and another one, missing or ended, did not.
            BaseException: what a function raised; that of the lowest rank.
        """
        self._functions, self._results, self._errors = dict(functions), {}, {}
        active = sorted(functions)
        while active:
            for rank in active:
                self._go[rank].release()
                if not self._back.acquire(timeout=_TURN_WITHIN_S):
                    raise RankLost(f"rank {rank} hangs: its turn takes over {_TURN_WITHIN_S:g} s")
            active = sorted(self._given)
            whole = len(active) == self.size
            self._gathered = [self._given[rank] for rank in active] if whole else None
            self._given = {}
        causes = [error for error in self._errors.values() if not isinstance(error, RankLost)]
        for error in (*causes, *self._errors.values()):
            raise error
        return self._results

    def close(self) -> None:
        """End the threads."""
        self._functions = {}
        for rank, thread in enumerate(self._threads):
            self._go[rank].release()
            thread.join(_TURN_WITHIN_S)

    def _run(self, rank: int) -> None:
        while True:
            self._go[rank].acquire()
            if (function := self._functions.get(rank)) is None:
                return
            try:
                self._results[rank] = function()
            except BaseException as error:  # `run` raises it
                self._errors[rank] = error
            self._back.release()

    def exchange(self, rank: int, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks; waits for the others' turns."""
        self._given[rank] = tensor.detach().clone()
        self._back.release()
        self._go[rank].acquire()
        if self._gathered is None:
            raise RankLost(f"rank {rank} exchanged, and another rank did not")
        return self._gathered


class _LockstepGroup(Group):
    def __init__(self, ranks: LockstepRanks, rank: int) -> None:
        self._ranks, self.rank, self.size = ranks, rank, ranks.size

    @override
    def gather(self, tensor: Tensor) -> list[Tensor]:
        return self._ranks.exchange(self.rank, tensor)
