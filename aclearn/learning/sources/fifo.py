"""The newest steps of each environment, first in, first out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aclearn.learning.account import StepAccount
from aclearn.learning.batch import Batch
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.learning.sources.source import BatchSource, SourceAround

#: Fields of a batch that are kept, `[T, B, …]`; observations have a row more.
_FIELDS = ("actions", "behaviour_log_prob", "rewards", "terminated", "truncated", "valid")
#: Instead of a version, where there is no step yet.
_NOT_THERE = -1
_PREFIX = "fifo/"


class Fifo(SourceAround):
    """Batches of the newest steps (Sha & Lan 2024, algorithm 2); there is no random replay.

    Each batch is the newest `unrolls` batches of the inner source one after another in time, as
    views, which the next call changes. Steps that are not there yet are not valid.

    Args:
        inner: gives batches of the same environments, in order.
        unrolls: number of its batches in one.
    """

    def __init__(self, inner: BatchSource, account: StepAccount, *, unrolls: int) -> None:
        super().__init__(inner)
        self._account, self._unrolls = account, unrolls
        self._steps = 0
        self._tensors: dict[str, Tensor] = {}
        self._new = torch.zeros(0)
        self._versions: NDArray[Any] = np.zeros((0, 0), np.int64)
        self._saved: dict[str, NDArray[Any]] = {}

    @override
    def next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        batch = self.inner.next(timeout_s, worker)
        if batch is None:
            return None
        with self._account.dropped_on_error(int(batch.new_steps)):
            return self._with_older(batch)

    def _with_older(self, batch: Batch) -> Batch:
        newest = {name: getattr(batch, name) for name in _FIELDS}
        newest |= {f"observations/{name}": leaf for name, leaf in batch.observations.items()}
        if not self._tensors:
            self._begin(newest)
        for name, tensor in newest.items():
            self._append(self._tensors[name], tensor)
        versions = self._versions
        versions[: -self._steps] = versions[self._steps :].copy()
        versions[-self._steps :] = batch.versions
        leaves = batch.observations
        fields: dict[str, Any] = {name: self._tensors[name] for name in _FIELDS}
        return replace(
            batch,
            observations={name: self._tensors[f"observations/{name}"] for name in leaves},
            new=self._new,
            versions=versions,
            unrolls=(),
            **fields,
        )

    def _begin(self, first: Mapping[str, Tensor]) -> None:
        """Take memory, which stays where it is; with the saved steps, if they are of this shape."""
        self._steps = len(first["valid"])
        rows = self._unrolls * self._steps
        for name, tensor in first.items():
            length = rows + len(tensor) - self._steps
            self._tensors[name] = tensor.new_zeros((length, *tensor.shape[1:]))
        valid = self._tensors["valid"]
        self._new = torch.zeros_like(valid)
        self._new[-self._steps :] = True
        self._versions = np.full(tuple(valid.shape), _NOT_THERE, np.int64)
        saved, self._saved = self._saved, {}
        if saved and saved["valid"].shape == tuple(valid.shape):
            for name, tensor in self._tensors.items():
                tensor.copy_(torch.from_numpy(np.array(saved[name])))
            self._versions[:] = saved["versions"]

    def _append(self, kept: Tensor, rows: Tensor) -> None:
        """Forget the oldest steps; the first of T + 1 observations is there already."""
        kept[: -self._steps].copy_(kept[self._steps :].clone())
        kept[-len(rows) :].copy_(rows)

    @override
    def state(self) -> dict[str, NDArray[Any]]:
        saved = self._saved
        if self._tensors:
            saved = {name: t.cpu().numpy().copy() for name, t in self._tensors.items()}
            saved["versions"] = self._versions.copy()
        return super().state() | {f"{_PREFIX}{name}": array for name, array in saved.items()}

    @override
    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        super().restore(saved)
        self._saved = {
            name.removeprefix(_PREFIX): array
            for name, array in saved.items()
            if name.startswith(_PREFIX)
        }
        self._tensors = {}
