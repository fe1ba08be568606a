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
        self._valid: NDArray[Any] = np.zeros(self.shape, np.bool_)
        self._versions: NDArray[Any] = np.zeros(self.shape, np.int64)

    def push(self, batch: Batch) -> Batch:
        """Append `batch` `[T, B]`, whose first observations are the last ones of before.

        Returns the newest steps, of which those of `batch` are new; views, which the next call
        changes.
        """
        for name, kept in self._leaves.items():
            self._append(kept, batch.observations[name])
        for name, kept in self._kept.items():
            self._append(kept, getattr(batch, name))
        for of_steps, given in (
            (self._valid, batch.valid_on_host),
            (self._versions, batch.versions),
        ):
            of_steps[: -self._steps] = of_steps[self._steps :].copy()
            of_steps[-self._steps :] = given
        new = np.zeros_like(self._valid)
        new[-self._steps :] = True
        changes: dict[str, Any] = {"versions": self._versions, "valid_on_host": self._valid}
        return replace(batch, observations=self._leaves, new=new, **self._kept, **changes)

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
        self._valid[:], self._versions[:] = saved["valid"], saved["versions"]
