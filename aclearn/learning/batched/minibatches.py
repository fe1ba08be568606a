"""The minibatches of M members' batches, in passes over them, as `Minibatches` has one's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from aclearn.learning.batch import Batch, cut_columns
from aclearn.learning.batched.tensors import mapped, of_member
from aclearn.learning.decisions import surely
from aclearn.learning.minibatches import random_orders


class MemberMinibatches:
    """The minibatches of a batch of members, whose tensors are `[M, T, B, …]`.

    Where a correction is frozen, members have different numbers of valid steps, and each its own
    order of them. Shorter minibatches are filled up with steps that are not valid.

    Args:
        batch: prepared.
        generators: of the members' orders.
        single_steps: `Batch.single_steps` of every member.

    Attributes:
        any_left: whether an end, which the first pass outlives, would leave any out now.
    """

    def __init__(
        self,
        batch: Batch,
        *,
        count: int,
        passes: int,
        generators: Sequence[torch.Generator],
        single_steps: Callable[[Batch, Tensor], Batch],
    ) -> None:
        self._single_steps = single_steps
        self._count, self._passes = count, passes
        self._shuffled = batch.frozen is not None
        self._batch = replace(batch, valid=batch.valid.clone()) if self._shuffled else batch
        self._parts = [] if self._shuffled else list(_columns(batch, count))
        self._orders = []
        if self._shuffled:
            self._orders = [
                random_orders(of_member(batch, member), generator)
                for member, generator in enumerate(generators)
            ]
        #: Steps of a minibatch, with those that fill it up: its shape is always the same.
        self._length = -(-batch.valid[0].numel() // count)
        self._places: list[tuple[Tensor, Tensor]] = []
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

    def refuse_unless(self, applied: Tensor) -> None:
        """Leave the newest minibatch of members out of further passes where not `applied` `[M]`."""
        if surely(applied.all()):
            return
        if not self._shuffled:
            part = self._parts[self._newest]
            self._parts[self._newest] = replace(part, valid=part.valid & applied[:, None, None])
            return
        numbers, real = self._places[self._newest]
        valid = self._batch.valid.flatten(1)
        refused = real & ~applied.unsqueeze(1)
        hit = torch.zeros_like(valid).scatter_reduce(1, numbers, refused, "amax")
        self._batch = replace(self._batch, valid=(valid & ~hit).view_as(self._batch.valid))

    def _shuffle(self) -> list[Batch]:
        orders = [next(each) for each in self._orders]
        parts = [order.tensor_split(min(self._count, max(1, len(order)))) for order in orders]
        self._places = []
        made = []
        for number in range(self._count):
            some = [each[number] if number < len(each) else each[0][:0] for each in parts]
            shape = len(some), self._length
            numbers = torch.zeros(shape, dtype=torch.int64, device=some[0].device)
            real = torch.zeros_like(numbers, dtype=torch.bool)
            for row, part in enumerate(some):
                numbers[row, : len(part)] = part
                real[row, : len(part)] = True
            self._places.append((numbers, real))
            taken = self._single_steps(self._batch, numbers)
            made.append(replace(taken, valid=taken.valid & real.unsqueeze(1)))
        return made


def _columns(batch: Batch, count: int) -> Iterator[Batch]:
    for columns in cut_columns(batch.actions.shape[2], count):
        yield mapped(batch, partial(_columns_of, columns=columns))


def _columns_of(tensor: Tensor, columns: slice) -> Tensor:
    return tensor[:, :, columns]
