"""Which rows of a batch give a gradient that is not finite, and what is in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from aclearn.learning import Batch, GradientWorker
from aclearn.types import NO_ACTOR, ORIGIN_BITS, origins_of

#: Most rows that are searched for in one update.
_MOST: Final = 16


@dataclass(frozen=True)
class Range:
    """Least and largest number of some values, and how many of them are not finite."""

    least: float
    most: float
    not_finite: int = 0


@dataclass(frozen=True)
class Culprit:
    """A row whose gradient is not finite by itself.

    Attributes:
        step: of the batch; None: all steps of the column, of which only the sequence counts.
        column: of the batch.
        actor: number of the actor that played it; None: the trainer's own environments.
        row: of all rows of this actor; an environment with one agent has one.
        version: of the policy that acted in the step.
        observation, others: leaf → range in the row, and in the whole batch.
        figures: name → range in the row: reward, log-probability, …
    """

    step: int | None
    column: int
    actor: int | None
    row: int
    version: int
    observation: Mapping[str, Range]
    others: Mapping[str, Range]
    figures: Mapping[str, Range]


def culprits_of(part: Batch, batch: Batch, worker: GradientWorker) -> list[Culprit]:
    """The rows of `batch` that make the gradient of `part` not finite, each by itself.

    Args:
        part: a minibatch, prepared; its `places` are the numbers t · B + b of rows of `batch`.
        worker: has the weights of this update.
    """
    found: list[Culprit] = []
    for column in _bad(part, worker):
        one = part.columns(slice(column, column + 1))
        assert one.places is not None
        row = _first_bad_row(one, worker)
        step, at = divmod(int(one.places[row or 0, 0]), batch.width)
        found.append(_culprit(batch, None if row is None else step, at))
    return found


def _bad(batch: Batch, worker: GradientWorker) -> Iterator[int]:
    """Columns with such a gradient by themselves, found by halves."""
    waiting, left = [slice(0, batch.width)], _MOST
    while waiting and left:
        some = waiting.pop()
        if _is_finite(batch.columns(some), worker):
            continue
        if some.stop - some.start == 1:
            left -= 1
            yield some.start
            continue
        middle = (some.start + some.stop) // 2
        waiting += [slice(middle, some.stop), slice(some.start, middle)]


def _first_bad_row(column: Batch, worker: GradientWorker) -> int | None:
    """The first row of a column with which its beginning has such a gradient.

    None: of a sequence with a frozen correction, which cannot be cut.
    """
    if column.frozen is not None and len(column.valid) > 1:
        return None
    good, bad = 0, len(column.valid)
    while bad - good > 1:
        middle = (good + bad) // 2
        if _is_finite(_beginning(column, middle), worker):
            good = middle
        else:
            bad = middle
    return bad - 1


def _beginning(batch: Batch, steps: int) -> Batch:
    """The first steps of a batch; observations and masks have a row more."""
    changes: dict[str, Any] = {
        name: value[: steps + (name == "masks")]
        for name, value in vars(batch).items()
        if isinstance(value, Tensor)
    }
    leaves = {name: leaf[: steps + 1] for name, leaf in batch.observations.items()}
    return replace(batch, observations=leaves, versions=batch.versions[:steps], **changes)


def _is_finite(batch: Batch, worker: GradientWorker) -> bool:
    if not int(batch.steps):
        return True
    worker.differentiate(worker.measure(replace(batch, measured=None)), batch.steps)
    given = [each for each in worker.gradients() if each is not None]
    # as the optimiser, which looks at the norm
    return bool(torch.stack([each.norm() for each in given]).norm().isfinite())


def _culprit(batch: Batch, step: int | None, column: int) -> Culprit:
    steps = slice(None) if step is None else slice(step, step + 1)
    acted_on = len(batch.valid)
    origins = batch.origins
    if origins is None:
        origins = origins_of(NO_ACTOR, batch.width)
    actor, row = divmod(int(origins[column]), 1 << ORIGIN_BITS)
    figures = {
        "reward": batch.rewards,
        "log probability": batch.behaviour_log_prob,
        "action": batch.actions if batch.actions.is_floating_point() else None,
    }
    return Culprit(
        step,
        column,
        None if actor == NO_ACTOR else actor,
        row,
        int(batch.versions[steps, column].max()),
        {name: _range(leaf[:acted_on][steps, column]) for name, leaf in batch.observations.items()},
        {name: _range(leaf) for name, leaf in batch.observations.items()},
        {
            name: _range(values[steps, column])
            for name, values in figures.items()
            if values is not None
        },
    )


def _range(values: Tensor) -> Range:
    finite = values[values.isfinite()]
    if not finite.numel():
        return Range(float("nan"), float("nan"), values.numel())
    return Range(float(finite.min()), float(finite.max()), values.numel() - finite.numel())
