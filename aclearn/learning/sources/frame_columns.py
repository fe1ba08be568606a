"""Observations of a replay memory's columns, each frame once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.types import LeafSpec


class FrameColumns:
    """One leaf's T + 1 observations of each column; rebuilds the stacks of those that are drawn."""

    def __init__(self, leaf: LeafSpec, *, columns: int, length: int, device: torch.device) -> None:
        self._leaf, self._length, self._stack = leaf, length, leaf.frame_stack
        frame = (leaf.shape[0] // self._stack, *leaf.shape[1:])
        dtype = torch.uint8 if leaf.dtype == "uint8" else torch.float32
        # the older frames of the first stack, then one frame for each observation
        self._frames = torch.zeros(
            (columns, self._stack + length, *frame), dtype=dtype, device=device
        )
        # place of an observation that begins an episode within a column → its older frames
        self._older: dict[int, Tensor] = {}

    @staticmethod
    def column_bytes(leaf: LeafSpec, length: int) -> int:
        """Bytes of a column; the older frames of episodes that begin within it come on top."""
        return leaf.nbytes // leaf.frame_stack * (leaf.frame_stack + length)

    def add(self, seen: Tensor, valid: Tensor, slots: Tensor) -> None:
        """Write columns.

        Args:
            seen: `[T+1, B, *shape]`, with their stacks.
            valid: `[T, B]`, the steps between them.
            slots: `[B]`, places of the columns.
        """
        older = self._stack - 1
        stacks = seen.view(*seen.shape[:2], self._stack, -1, *seen.shape[3:]).transpose(0, 1)
        self._frames[slots, :older] = stacks[:, 0, :-1]
        self._frames[slots, older:] = stacks[:, :, -1]
        if not older:
            return
        written = set(slots.tolist())
        for place in [place for place in self._older if place // self._length in written]:
            del self._older[place]
        for t, b in (~valid[:-1] & valid[1:]).nonzero().tolist():
            self._older[int(slots[b]) * self._length + t + 1] = stacks[b, t + 1, :-1].clone()

    def at(self, slots: Tensor, rows: Tensor, valid: Tensor) -> Tensor:
        """The observations `[…, *shape]` in these rows of columns; images in channels-last memory.

        Args:
            slots: `[…]`, of the columns.
            rows: `[…]`, 0 to T.
            valid: `[columns, T]`, steps of all columns.
        """
        first = (slots * self._frames.shape[1] + rows).unsqueeze(-1)
        places = first + torch.arange(self._stack, device=rows.device)
        # many times as fast as an index of several tensors
        frames = self._frames.flatten(0, 1).index_select(0, places.flatten())
        frames = frames.view(*places.shape, *self._frames.shape[2:])  # […, S, *frame]
        if self._older:
            self._correct(frames, slots, rows, valid)
        stacks = frames.flatten(rows.ndim, rows.ndim + 1)
        if not self._leaf.is_image:
            return stacks
        return stacks.movedim(-3, -1).contiguous().movedim(-1, -3)

    def _correct(self, frames: Tensor, slots: Tensor, rows: Tensor, valid: Tensor) -> None:
        """Write the older frames of observations soon after the beginning of an episode."""
        older = self._stack - 1
        for age in range(older - 1, -1, -1):  # of two beginnings the nearer one wins
            begun = rows - age
            inside = (begun > 0) & (begun < self._length)
            step = begun.clamp(1, self._length - 1)
            begins = inside & valid[slots, step] & ~valid[slots, step - 1]
            for where in begins.nonzero().unbind():
                at = tuple(where.tolist())
                place = int(slots[at]) * self._length + int(begun[at])
                frames[at][: older - age] = self._older[place][age:]

    def state(self, columns: int) -> dict[str, NDArray[Any]]:
        """A copy of the first columns, for `load_state`."""
        older = [*self._older.values()]
        return {
            "frames": self._frames[:columns].cpu().numpy().copy(),
            "older_places": np.array(list(self._older), np.int64),
            "older": torch.stack(older).cpu().numpy() if older else np.zeros(0, np.uint8),
        }

    def load_state(self, saved: Mapping[str, NDArray[Any]], columns: int) -> None:
        """Continue from a `state` of so many columns.

        Raises:
            KeyError, ValueError, RuntimeError: it is of another leaf, and nothing has changed.
        """
        frames, kept = torch.from_numpy(np.array(saved["frames"])), self._frames[:columns]
        if frames.shape != kept.shape:
            raise ValueError(
                f"replay: expected frames of shape {list(kept.shape)}, got {list(frames.shape)}"
            )
        older = torch.from_numpy(np.array(saved["older"])).to(self._frames.device)
        self._older = dict(zip(saved["older_places"].tolist(), older, strict=True))
        kept.copy_(frames)
