"""The newest steps of each environment, first in, first out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.learning.batch import Batch

#: Fields of a batch that are kept, `[T, B, …]`; observations have a row more.
_FIELDS = ("actions", "behaviour_log_prob", "rewards", "terminated", "truncated", "valid")
#: Instead of a version, where there is no step yet.
_NOT_THERE = -1


class FifoBuffer:
    """Appends batches in time, and forgets the oldest steps; all of the same environments.

    The memory stays where it is. Steps that are not there yet are not valid.

    Args:
        first: a batch `[T, B]` of the kind that will be added; it is not added.
        unrolls: T times this many steps are kept.

    Attributes:
        shape: `[unrolls · T, B]`.
    """

    def __init__(self, first: Batch, *, unrolls: int) -> None:
        self._steps = len(first.actions)

        def rows(tensor: Tensor, more: int = 0) -> Tensor:
            return tensor.new_zeros((unrolls * self._steps + more, *tensor.shape[1:]))

        self._leaves = {name: rows(leaf, 1) for name, leaf in first.observations.items()}
        self._kept: dict[str, Any] = {name: rows(getattr(first, name)) for name in _FIELDS}
        self.shape = tuple(self._kept["valid"].shape)
        self._new = torch.zeros_like(self._kept["valid"])
        self._new[-self._steps :] = True
        self._versions: NDArray[Any] = np.full(self.shape, _NOT_THERE, np.int64)

    def push(self, batch: Batch, *, waits: bool = True) -> Batch:
        """Append `batch` `[T, B]`, whose first observations are the last ones of before.

        Args:
            batch: of the same environments.
            waits: for the valid steps, on the host; else all that are there count as valid there.

        Returns:
            The newest steps, of which those of `batch` are new; views, which the next call changes.
        """
        for name, kept in self._leaves.items():
            self._append(kept, batch.observations[name])
        for name, kept in self._kept.items():
            self._append(kept, getattr(batch, name))
        versions = self._versions
        versions[: -self._steps] = versions[self._steps :].copy()
        versions[-self._steps :] = batch.versions
        known = self._kept["valid"].cpu().numpy() if waits else versions != _NOT_THERE
        return replace(
            batch,
            observations=self._leaves,
            new=self._new,
            versions=versions,
            valid_on_host=known,
            **self._kept,
        )

    def _append(self, kept: Tensor, rows: Tensor) -> None:
        """Forget the oldest steps; the first of T + 1 observations is there already."""
        kept[: -self._steps].copy_(kept[self._steps :].clone())
        kept[-len(rows) :].copy_(rows)

    def state(self) -> dict[str, NDArray[Any]]:
        """A copy of all that `load_state` needs, by name."""
        tensors = {f"observations/{name}": leaf for name, leaf in self._leaves.items()}
        saved = {name: t.cpu().numpy().copy() for name, t in (tensors | self._kept).items()}
        return saved | {"versions": self._versions.copy()}

    def load_state(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a `state`.

        Raises:
            KeyError, ValueError, RuntimeError: it is of other steps, environments or leaves.
        """
        for name, leaf in self._leaves.items():
            leaf.copy_(torch.from_numpy(np.array(saved[f"observations/{name}"])))
        for name, kept in self._kept.items():
            kept.copy_(torch.from_numpy(np.array(saved[name])))
        self._versions[:] = saved["versions"]
