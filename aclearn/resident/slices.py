"""The environments in slices: on the CPU one for each thread, on a GPU all in one."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

#: Fewer agents than this are not worth a thread.
_LEAST = 1024


class Slice(NamedTuple):
    """Neighbouring environments: number of the slice, its first environment, and their count."""

    part: int
    first: int
    size: int


class Slices:
    """Runs a function on every slice, in as many threads.

    Warp's kernels for the CPU run serially and release Python's lock, as torch's operations do.

    Args:
        threads: of the CPU; None: one for each core of this process.
        agents: of an environment.
    """

    def __init__(
        self, envs: int, device: torch.device, threads: int | None = None, *, agents: int = 1
    ) -> None:
        cores = threads or len(os.sched_getaffinity(0))
        worth = min(envs, envs * agents // _LEAST)
        count = 1 if device.type == "cuda" else max(1, min(cores, worth))
        edges = [envs * i // count for i in range(count + 1)]
        self.all = [Slice(i, edges[i], edges[i + 1] - edges[i]) for i in range(count)]
        self._pool = (
            ThreadPoolExecutor(count - 1, thread_name_prefix="slice") if count > 1 else None
        )

    def run(self, work: Callable[[Slice], None]) -> None:
        """`work` of every slice; returns when all have ended, and raises what one raised."""
        if self._pool is None:
            work(self.all[0])
            return
        others = [self._pool.submit(work, part) for part in self.all[1:]]
        try:
            work(self.all[0])
        finally:
            for other in others:
                other.exception()  # waits: the arrays must not be read before
        for other in others:
            other.result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
