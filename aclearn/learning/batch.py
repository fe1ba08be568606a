"""Training batches: unrolls side by side, their frame stacks rebuilt, as torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from aclearn.learning.frame_stack import rebuild_observations
from aclearn.learning.frozen_correction import FrozenCorrection
from aclearn.learning.staging import HOST, Staging
from aclearn.types import Unroll


@dataclass(frozen=True, eq=False)
class Batch:
    """One update's data, time-major.

    Attributes:
        observations: `[T+1, B, *shape]`; images in channels-last memory. The last row is what step
            T-1 reached.
        actions: `[T, B]` int64.
        behaviour_log_probs: `[T, B]` float32, log μ(a) recorded when the action was chosen.
        rewards: `[T, B]` float32.
        terminated: `[T, B]` bool; the state that was reached is worth nothing more.
        truncated: `[T, B]` bool; the episode was cut, the state that was reached keeps its value.
        valid: `[T, B]` bool; what is not valid (autoreset steps, failed episodes) is not learned.
        versions: `[T, B]` int64, the policy version that chose each action.
        mask: `valid` on the host, so that nobody has to wait for the device to look at it.
        steps: number of valid steps.
        frozen: the correction that all updates from this batch share; None where each makes its
            own.
    """

    observations: Tensor
    actions: Tensor
    behaviour_log_probs: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    versions: NDArray[np.int64]
    mask: NDArray[np.bool_]
    steps: int
    frozen: FrozenCorrection | None = None

    @property
    def width(self) -> int:
        """B."""
        return self.actions.shape[1]

    def cut(self, count: int) -> list[Batch]:
        """At most `count` batches of neighbouring environments, as views of this one."""
        parts = []
        frozen = self.frozen
        for columns in cut_columns(self.width, count):
            names = ("actions", "behaviour_log_probs", "rewards", "terminated", "truncated")
            mask = self.mask[:, columns]
            parts.append(
                Batch(
                    observations=self.observations[:, columns],
                    valid=self.valid[:, columns],
                    versions=self.versions[:, columns],
                    mask=mask,
                    steps=int(np.count_nonzero(mask)),
                    frozen=frozen.columns(columns) if frozen is not None else None,
                    **{name: getattr(self, name)[:, columns] for name in names},
                )
            )
        return parts


def cut_columns(width: int, count: int) -> list[slice]:
    """At most `count` neighbouring slices of about the same size that cover `width` columns."""
    count = min(count, width)
    edges = [width * i // count for i in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def assemble_batch(
    unrolls: Sequence[Unroll], *, frame_stack: int, staging: Staging = HOST
) -> Batch:
    """The unrolls side by side as one batch, where `staging` brings it.

    Args:
        unrolls: of one length.
        frame_stack: S.
        staging: the way to the device; what it brings is in the current stream.

    Raises:
        ValueError: unrolls of different lengths.
    """
    lengths = {unroll.actions.shape[0] for unroll in unrolls}
    if len(lengths) != 1:
        raise ValueError(f"unrolls: expected one length, got {sorted(lengths)}")
    first = unrolls[0].frames
    width = sum(unroll.actions.shape[1] for unroll in unrolls)
    shape: tuple[int, ...] = first.shape[2:]
    if len(shape) == 3:
        channels, height, width_px = shape
        shape = (height, width_px, channels * frame_stack)
    observations = staging.empty("observations", (first.shape[0], width, *shape), dtype=first.dtype)
    column = 0
    for unroll in unrolls:
        columns = slice(column, column + unroll.actions.shape[1])
        rebuild_observations(unroll, observations[:, columns], frame_stack=frame_stack)
        column = columns.stop
    pixels = staging.upload("observations", observations)
    if len(shape) == 3:
        pixels = pixels.permute(0, 1, 4, 2, 3)

    def side_by_side(name: str, dtype: type[np.generic]) -> NDArray[Any]:
        parts = [getattr(unroll, name) for unroll in unrolls]
        return np.concatenate(parts, axis=1).astype(dtype, copy=False)

    def uploaded(name: str, dtype: type[np.generic]) -> Tensor:
        return staging.upload(name, side_by_side(name, dtype))

    versions = [
        np.broadcast_to(unroll.versions[:, None], unroll.actions.shape) for unroll in unrolls
    ]
    mask = side_by_side("valid", np.bool_)
    return Batch(
        observations=pixels,
        actions=uploaded("actions", np.int64),
        behaviour_log_probs=uploaded("behaviour_log_probs", np.float32),
        rewards=uploaded("rewards", np.float32),
        terminated=uploaded("terminated", np.bool_),
        truncated=uploaded("truncated", np.bool_),
        valid=staging.upload("valid", mask),
        versions=np.concatenate(versions, axis=1),
        mask=mask,
        steps=int(np.count_nonzero(mask)),
    )
