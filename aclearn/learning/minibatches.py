"""The minibatches of a batch, in passes over it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from aclearn.learning.batch import Batch


class Minibatches:
    """The minibatches of a batch, one pass after another.

    With a frozen correction a step needs no other step: each epoch splits all valid steps in
    another random order. Otherwise targets are computed along unrolls, as states are: neighbouring
    environments are a minibatch, the same in each pass. Minibatches without a valid step are left
    out.

    Args:
        batch: to learn from.
        count: of minibatches in a pass.
        passes: over the batch.
        generator: of the order; several threads may share it.

    Attributes:
        ended: whether `end` has left some out.
    """

    def __init__(
        self, batch: Batch, *, count: int, passes: int, generator: torch.Generator
    ) -> None:
        self._batch, self._count, self._passes = batch, count, passes
        self._generator = generator
        self._asked_to_end = self.ended = False
        self._shuffled = batch.frozen is not None and not batch.state
        self._refused: set[Batch] = set()
        self._steps: NDArray[np.int64] = np.flatnonzero(batch.valid_on_host)
        self._parts = [] if self._shuffled else [p for p in batch.cut(count) if p.steps > 0]

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        """Number of the pass, minibatch."""
        for index in range(self._passes):
            for minibatch in self._shuffle() if self._shuffled else self._cut():
                if index > 0 and self._asked_to_end:
                    self.ended = True
                    return
                yield index, minibatch

    def refuse(self, minibatch: Batch) -> None:
        """Leave the steps of the last minibatch out of the further passes."""
        self._refused.add(minibatch)

    def end(self) -> None:
        """Leave out what follows the first pass, in which every step is learned."""
        self._asked_to_end = True

    def _cut(self) -> Iterator[Batch]:
        for minibatch in self._parts:
            if minibatch not in self._refused:
                yield minibatch

    def _in_random_order(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        order = torch.randperm(len(steps), generator=self._generator)
        ordered: NDArray[np.int64] = steps[order.numpy()]
        return ordered

    def _shuffle(self) -> Iterator[Batch]:
        steps = self._in_random_order(self._steps)
        shuffled = self._batch.single_steps(steps)  # views of one copy cost less than copies
        learned = []
        for part in np.array_split(np.arange(len(steps)), min(self._count, max(1, len(steps)))):
            if not len(part):
                continue
            minibatch = shuffled.columns(slice(part[0], part[-1] + 1))
            yield minibatch
            if minibatch not in self._refused:
                learned.append(steps[part])
        self._refused.clear()
        self._steps = np.concatenate(learned) if learned else steps[:0]
