"""Training batches: unrolls side by side as torch tensors, with frame stacks rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.learning.frame_stack import rebuild_observations
from aclearn.learning.staging import HOST, Staging
from aclearn.types import LeafSpec, ObservationSpec, Unroll
from correctors import Correction


@dataclass(frozen=True, eq=False)
class FrozenCorrection:
    """The correction by the weights before a batch's first update, for all its updates.

    Attributes:
        correction: targets, advantages and weights.
        log_probs: `[T, B]` float32, log π(a) of the policy of those weights, no gradient.
        values: `[T, B]` float32, those that the loss regresses, by the same weights.
    """

    correction: Correction
    log_probs: Tensor
    values: Tensor

    def scaled(self, advantage_scale: float | Tensor) -> FrozenCorrection:
        """A copy with another factor of the advantages."""
        return replace(self, correction=replace(self.correction, advantage_scale=advantage_scale))

    def taken(self, take: Callable[[Tensor], Tensor]) -> FrozenCorrection:
        """The part of the steps that `take` finds in each of its tensors."""
        return FrozenCorrection(
            self.correction.taken(take), take(self.log_probs), take(self.values)
        )


@dataclass(frozen=True, eq=False)
class Batch:
    """One update's data, time-major.

    Attributes:
        observations: leaf → `[T+1, B, *shape]`; images in channels-last memory. Step T-1 reached
            the last row, which single steps of a frozen batch do not have.
        actions: `[T, B]` int64, or `[T, B, n]` int64 or float32.
        behaviour_log_prob: `[T, B]` float32, log μ(a) recorded when the action was chosen.
        rewards: `[T, B]` float32.
        terminated: `[T, B]` bool; the reached state has the value 0.
        truncated: `[T, B]` bool; the episode was cut, the reached state keeps its value.
        valid: `[T, B]` bool; other steps (autoresets, failed episodes) are not learned.
        versions: `[T, B]` int64, the policy version that chose each action.
        behaviour_parameters: `[T, B, P]` float32 of μ, where the run asks for them.
        state: float32 `[B, …]` each, the policy's state before the first step.
        masks: `[T+1, B, A]` bool, the actions that `observations` allow, with as many rows; None:
            all.
        frozen: the correction that all updates from this batch share; None where each has its own.
        new: `[T, B]` bool, the steps of no earlier batch; None: all.
        all_valid: known to have valid steps only, so that nothing need be masked.
        discounts: `[T, B]` float32, factor of the value behind each step, 0 where it terminated;
            None: γ.
        weights: `[T, B]` float32, factor of each step's loss (prioritised replay); None: 1.
        places: `[T, B]` int64, each step's place in a replay memory.
        acting_log_prob: `[T, B]` float32, log π(a) of the uncompressed policy of each step's
            version; NaN where its weights are not kept; None where nothing asks for it.
        measured: what the correctors have measured of all steps of an update, as
            `CorrectorChain.measure` gives it; None until then.
        origins: `[B]` int64, who played each column of the whole batch, as `Unroll.origins`; None:
            column b is of row b of the trainer's own environments.
        unrolls: those that the whole batch was assembled of; (): it was made otherwise.
        chain_steps: the new steps by the chain of the policy that chose their actions; {}: not
            known.
    """

    observations: dict[str, Tensor]
    actions: Tensor
    behaviour_log_prob: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    versions: NDArray[np.int64]
    behaviour_parameters: Tensor | None = None
    state: tuple[Tensor, ...] = ()
    masks: Tensor | None = None
    frozen: FrozenCorrection | None = None
    new: Tensor | None = None
    all_valid: bool = False
    discounts: Tensor | None = None
    weights: Tensor | None = None
    places: Tensor | None = None
    acting_log_prob: Tensor | None = None
    measured: tuple[Tensor | None, ...] | None = None
    origins: NDArray[np.int64] | None = None
    unrolls: tuple[Unroll, ...] = ()
    chain_steps: Mapping[str, int] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """B."""
        return self.actions.shape[1]

    @property
    def starts(self) -> Tensor:
        """`[T+1, B]` bool, observations that begin an episode, for a policy with a state.

        A reset is a step that is not valid. Other rows that this marks are not learned.
        """
        return torch.cat([torch.zeros_like(self.valid[:1]), ~self.valid])

    @property
    def step_masks(self) -> Tensor | None:
        """`[T, B, A]` bool, the actions that were allowed in each step; None: all."""
        return None if self.masks is None else self.masks[: len(self.actions)]

    @property
    def steps(self) -> Tensor:
        """`[]` int64, number of valid steps."""
        return self.valid.sum()

    @property
    def new_steps(self) -> Tensor:
        """`[]` int64, number of valid steps that no earlier batch had."""
        return (self.valid if self.new is None else self.valid & self.new).sum()

    @property
    def tensors(self) -> list[Tensor]:
        """Those of a batch that is not prepared, in a fixed order."""
        each = [*self.observations.values(), *self.state, *vars(self).values()]
        return [tensor for tensor in each if isinstance(tensor, Tensor)]

    def discounts_of(self, discount: float) -> Tensor:
        """`discounts`, or else `discount` where no step terminated."""
        if self.discounts is not None:
            return self.discounts
        return discount * (~self.terminated).float()

    def of_valid(self, values: Tensor) -> Tensor:
        """`values` `[…, T, B]` with 0 where steps are not valid, even where they are NaN."""
        return values if self.all_valid else values.masked_fill(~self.valid, 0.0)

    def columns(self, columns: slice | Tensor) -> Batch:
        """Some environments: neighbouring ones as views of this batch, or numbered ones as copies.

        Numbered ones are without the versions, which lie on the host.
        """
        numbered = isinstance(columns, Tensor)
        versions = self.versions[:0] if numbered else self.versions[:, columns]
        return self._taken(lambda tensor, dim: tensor[(slice(None),) * dim + (columns,)], versions)

    def split(self, widths: Sequence[int]) -> list[Batch]:
        """Parts of so many neighbouring environments, as views of this batch."""
        # each tensor is split at once: a call for each part of it would cost more
        parts = cache(lambda tensor, dim: tensor.split(widths, dim))
        versions = np.split(self.versions, np.cumsum(widths)[:-1], axis=1)

        def part(number: int) -> Batch:
            return self._taken(lambda tensor, dim: parts(tensor, dim)[number], versions[number])

        return [part(number) for number in range(len(widths))]

    def _taken(self, take: Callable[[Tensor, int], Tensor], versions: NDArray[np.int64]) -> Batch:
        """The environments that `take` finds in a dimension of each tensor."""
        changes: dict[str, Any] = {
            name: take(value, 1) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(
            self,
            observations={name: take(leaf, 1) for name, leaf in self.observations.items()},
            state=tuple(take(tensor, 0) for tensor in self.state),
            frozen=None if self.frozen is None else self.frozen.taken(lambda each: take(each, 1)),
            versions=versions,
            **changes,
        )

    def after(self, steps: int, state: tuple[Tensor, ...]) -> Batch:
        """The batch without its first steps, as views, which begins with `state`."""
        changes: dict[str, Any] = {
            name: value[steps:] for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        leaves = {name: leaf[steps:] for name, leaf in self.observations.items()}
        versions = self.versions[steps:]
        return replace(self, observations=leaves, state=state, versions=versions, **changes)

    def single_steps(self, numbers: Tensor) -> Batch:
        """Copies of single steps, `[1, N]`, for a policy without state; the correction is frozen.

        The versions, which lie on the host, are left out.

        Args:
            numbers: t · B + b of each step, int64 on the device.
        """
        assert self.frozen is not None and not self.state
        changes: dict[str, Any] = {
            name: value.flatten(0, 1)[numbers].unsqueeze(0)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(
            self,
            observations={
                name: _chosen(leaf[:-1].flatten(0, 1), numbers).unsqueeze(0)
                for name, leaf in self.observations.items()
            },
            versions=self.versions[:0],
            frozen=self.frozen.taken(lambda each: each.flatten()[numbers].unsqueeze(0)),
            **changes,
        )

    def cut(self, count: int) -> list[Batch]:
        """At most `count` batches of neighbouring environments, as views of this one."""
        if count <= 1:
            return [self]
        return self.split([each.stop - each.start for each in cut_columns(self.width, count)])


def cut_columns(width: int, count: int) -> list[slice]:
    """At most `count` neighbouring slices of about the same size that cover `width` columns."""
    count = min(count, width)
    edges = [width * i // count for i in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def assemble_batch(
    unrolls: Sequence[Unroll], *, observation: ObservationSpec, staging: Staging = HOST
) -> Batch:
    """The unrolls side by side as one batch on the device of `staging`.

    Args:
        unrolls: checked, so that all have one length.
        staging: uploads in the current stream.
    """

    def side_by_side(name: str, dtype: type[np.generic]) -> NDArray[Any]:
        parts = [getattr(unroll, name) for unroll in unrolls]
        return np.concatenate(parts, axis=1).astype(dtype, copy=False)

    def uploaded(name: str, dtype: type[np.generic]) -> Tensor:
        return staging.upload(name, side_by_side(name, dtype))

    def uploaded_if_any(name: str, dtype: type[np.generic]) -> Tensor | None:
        return None if getattr(unrolls[0], name) is None else uploaded(name, dtype)

    numbers = unrolls[0].actions.dtype == np.float32
    versions = [np.broadcast_to(unroll.versions[:, None], unroll.valid.shape) for unroll in unrolls]
    valid = side_by_side("valid", np.bool_)
    return Batch(
        observations={
            name: _leaf(unrolls, name, leaf, staging) for name, leaf in observation.items()
        },
        actions=uploaded("actions", np.float32 if numbers else np.int64),
        behaviour_log_prob=uploaded("behaviour_log_prob", np.float32),
        rewards=uploaded("rewards", np.float32),
        terminated=uploaded("terminated", np.bool_),
        truncated=uploaded("truncated", np.bool_),
        valid=staging.upload("valid", valid),
        versions=np.concatenate(versions, axis=1),
        behaviour_parameters=uploaded_if_any("behaviour_parameters", np.float32),
        state=tuple(
            staging.upload(f"state.{index}", np.concatenate(parts))
            for index, parts in enumerate(zip(*(unroll.state for unroll in unrolls), strict=True))
        ),
        masks=uploaded_if_any("masks", np.bool_),
        origins=np.concatenate([unroll.origins for unroll in unrolls]),
        unrolls=tuple(unrolls),
    )


def _leaf(unrolls: Sequence[Unroll], name: str, leaf: LeafSpec, staging: Staging) -> Tensor:
    """A leaf's observations `[T+1, B, *shape]`, with stacks rebuilt."""
    length = unrolls[0].actions.shape[0]
    width = sum(unroll.actions.shape[1] for unroll in unrolls)
    image = len(leaf.shape) == 3
    shape = (*leaf.shape[1:], leaf.shape[0]) if image else leaf.shape
    slot = f"observations.{name}"
    observations = staging.empty(slot, (length + 1, width, *shape), dtype=np.dtype(leaf.dtype))
    column = 0
    for unroll in unrolls:
        columns = slice(column, column + unroll.actions.shape[1])
        rebuild_observations(unroll, name, leaf, observations[:, columns])
        column = columns.stop
    uploaded = staging.upload(slot, observations)
    return uploaded.permute(0, 1, 4, 2, 3) if image else uploaded


def _chosen(rows: Tensor, numbers: Tensor) -> Tensor:
    """`rows[numbers]`, where images in channels-last memory are copied a whole one at a time."""
    if rows.ndim != 4:
        return rows[numbers]
    return rows.movedim(1, -1).index_select(0, numbers).movedim(-1, 1)
