"""The minibatches of a batch, in passes over it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from aclearn.learning.batch import Batch
from aclearn.learning.decisions import readable, surely


def random_orders(batch: Batch, generator: torch.Generator) -> Iterator[Tensor]:
    """Random orders of a batch's single steps, int64 numbers t · B + b, without end.

    They are of the valid steps; of all steps where reading these would wait for a GPU. Of a policy
    with a state they are of the environments, number b.

    Args:
        generator: on the device of the batch; several threads may share it.
    """
    valid = batch.valid.flatten()
    steps = torch.arange(batch.width if batch.state else len(valid), device=valid.device)
    if readable(valid.device) and not batch.state:
        steps = steps[valid]
    while True:
        order = torch.randperm(len(steps), generator=generator, device=steps.device)
        steps = steps[order]
        yield steps


def most_parts(batch: Batch) -> Tensor:
    """`[]` int64, the largest number of minibatches of a prepared batch."""
    if batch.frozen is not None and not batch.state:
        return batch.steps
    return torch.tensor(batch.width, device=batch.valid.device)


class Minibatches:
    """The minibatches of a batch, one pass after another.

    With a frozen correction a step needs no other step: each pass splits the steps in another
    random order, or of a policy with a state the environments, whose sequences stay whole. A single
    minibatch stays as it is. Otherwise targets are computed along unrolls: neighbouring
    environments are a minibatch, the same in each pass.

    Args:
        batch: prepared.
        orders: `random_orders` of the batch, one for each pass.

    Attributes:
        any_left: whether an end, which the first pass outlives, would leave any out now.
    """

    def __init__(self, batch: Batch, *, count: int, passes: int, orders: Iterable[Tensor]) -> None:
        self._count, self._passes, self._orders = count, passes, iter(orders)
        self._shuffled = batch.frozen is not None and count > 1
        if self._shuffled:
            batch = replace(batch, valid=batch.valid.clone())
        else:
            batch = replace(batch, all_valid=surely(batch.valid.all()))
        self._batch = batch
        self._parts = [] if self._shuffled else batch.cut(count)
        #: Of each part, where they are shuffled, its indices of `[T, B]`.
        self._places: list[tuple[Tensor | slice, Tensor]] = []
        self._errors: dict[int, Tensor] = {}
        self._of_steps: Tensor | None = None  # errors, where they are shuffled
        self._newest = 0
        self.any_left = passes > 1

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        """Number of the pass, minibatch."""
        for index in range(self._passes):
            if self._shuffled:
                self._parts = self._shuffle()
            for number in range(len(self._parts)):
                self._newest = number
                last = index + 1 == self._passes and number + 1 == len(self._parts)
                self.any_left = self._passes > 1 and not last
                yield index, self._parts[number]

    def whole(self, errors: Tensor | None) -> Tensor | None:
        """`[T, B]`, the newest errors of each minibatch, with these of the newest one.

        Before each has some they are None, or NaN where minibatches are shuffled.
        """
        if errors is None:
            return None
        if self._shuffled:
            if self._of_steps is None:
                self._of_steps = self._batch.rewards.new_full(
                    self._batch.rewards.shape, torch.nan, dtype=errors.dtype
                )
            place = self._places[self._newest]
            self._of_steps[place] = errors if self._batch.state else errors[0]
            return self._of_steps
        self._errors[self._newest] = errors
        if len(self._errors) < len(self._parts):
            return None
        return torch.cat([self._errors[number] for number in range(len(self._parts))], dim=1)

    def refuse_unless(self, applied: Tensor) -> None:
        """Leave the steps of the newest minibatch out of further passes, unless it was applied."""
        if surely(applied):
            return
        if self._shuffled:
            valid, place = self._batch.valid, self._places[self._newest]
            valid[place] = valid[place] & applied
        else:
            part = self._parts[self._newest]
            valid = part.valid & applied
            self._parts[self._newest] = replace(part, valid=valid, all_valid=False)

    def _shuffle(self) -> list[Batch]:
        order, batch = next(self._orders), self._batch
        # views of one copy cost less than copies
        shuffled = batch.columns(order) if batch.state else batch.single_steps(order)
        shuffled = replace(shuffled, all_valid=surely(shuffled.valid.all()))
        parts = order.tensor_split(min(self._count, max(1, len(order))))
        self._places = [
            (slice(None), part) if batch.state else (part // batch.width, part % batch.width)
            for part in parts
        ]
        return shuffled.split([len(part) for part in parts])
