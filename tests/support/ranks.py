"""Ranks in threads of one process, in lock-step or over gloo."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
import torch.distributed as dist

from aclearn.learning.ranks import Group, LockstepRanks
from aclearn.learning.ranks.torch_group import TorchGroup

T = TypeVar("T")


def run_ranks(kind: str, size: int, function: Callable[[Group], T]) -> list[T]:
    """The results of `function` for each rank of a group: "lockstep", "gloo" or "nccl"."""
    if kind == "lockstep":
        ranks = LockstepRanks(size)
        try:
            made = ranks.run({r: lambda r=r: function(ranks.group(r)) for r in range(size)})
        finally:
            ranks.close()
        return [made[rank] for rank in range(size)]
    store = dist.HashStore()

    def run(rank: int) -> T:
        device = torch.device("cuda", rank) if kind == "nccl" else torch.device("cpu")
        group = TorchGroup(
            store, rank=rank, size=size, device=device, within_s=30.0, answer_within_s=30.0
        )
        try:
            return function(group)
        finally:
            group.close()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))
