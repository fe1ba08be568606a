"""Ranks in several processes, over torch.distributed: gloo on the CPU, NCCL on GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, Store
from typing_extensions import override

from aclearn.errors import RankLost
from aclearn.learning.ranks.group import Group

#: Longest wait for the other ranks in an exchange: a rank may play a whole batch meanwhile, or
#: compile its environments. A killed one is noticed at once, since its connections close.
_ANSWER_WITHIN_S = 120.0
#: Seconds between two looks in an exchange.
_LOOK_EVERY_S = 0.05


class TorchGroup(Group):
    """The group as one of its processes sees it; one thread at a time.

    Args:
        store: where the ranks find each other, the same for all.
        host: the address of this process for the others; gloo's alone.
        within_s: seconds for all ranks to connect; gloo's alone, since NCCL connects later.

    Raises:
        RankLost: the others did not connect.
    """

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        size: int,
        device: torch.device,
        host: str = "127.0.0.1",
        within_s: float = 60.0,
        answer_within_s: float = _ANSWER_WITHIN_S,
    ) -> None:
        self.rank, self.size, self._device = rank, size, device
        self._answer_within_s, self._lost = answer_within_s, ""
        self._meanwhile: Callable[[], object] = lambda: None
        try:
            self._group = _process_group(store, rank, size, device, host, within_s)
        except RuntimeError as error:
            raise RankLost(f"rank {rank} of {size} cannot connect to the others: {error}") from None

    @override
    def gather(self, tensor: Tensor) -> list[Tensor]:
        mine = tensor.detach().contiguous()
        gathered = [torch.empty_like(mine) for _ in range(self.size)]
        options = AllgatherOptions()
        options.timeout = timedelta(seconds=2 * _ANSWER_WITHIN_S)  # `_wait` ends it before
        try:
            if not self._lost:
                self._wait(self._group.allgather([gathered], [mine], options))
        except RuntimeError as error:
            self._lost = str(error)  # what comes later would belong to another exchange
        if self._lost:
            raise RankLost(f"rank {self.rank} of {self.size} has lost another rank: {self._lost}")
        return gathered

    @override
    def hurry(self, within_s: float) -> None:
        self._answer_within_s = within_s

    @override
    def watch(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile

    @override
    def close(self) -> None:
        self._group.shutdown()

    def _wait(self, work: Any) -> None:
        began = time.monotonic()
        while True:
            try:
                work.wait(timedelta(seconds=_LOOK_EVERY_S))
                return
            except RuntimeError:
                if work.is_completed():  # it has failed, or has just ended
                    work.wait()
                    return
                if time.monotonic() - began > self._answer_within_s:
                    raise RuntimeError(f"no answer within {self._answer_within_s:g} s") from None
                self._meanwhile()


def _process_group(
    store: Store, rank: int, size: int, device: torch.device, host: str, within_s: float
) -> Any:
    if device.type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=_ANSWER_WITHIN_S)
        torch.cuda.set_device(device)
        return dist.ProcessGroupNCCL(store, rank, size, options)
    made = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    made._timeout = timedelta(seconds=within_s)
    made._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
    return dist.ProcessGroupGloo(store, rank, size, made)
