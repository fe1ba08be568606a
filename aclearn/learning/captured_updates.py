"""All updates of a batch in fixed memory as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from aclearn.learning.batch import Batch
from aclearn.learning.update_report import Sums
from aclearn.policies.cuda_stream import CudaStream, captured


class CapturedUpdates:
    """The updates of one batch after another in the memory of the first.

    Args:
        orders: of single steps in each pass, of the numbers that later ones have.
        updates: makes all updates, in such orders, without a wait for the device.
        memory: of all that they change and the next ones read.
        stream: the current one.
    """

    def __init__(
        self,
        batch: Batch,
        orders: Iterable[Tensor],
        *,
        updates: Callable[[Iterator[Tensor]], Iterator[Sums]],
        memory: Iterable[Tensor],
        generators: Iterable[torch.Generator],
        stream: CudaStream,
    ) -> None:
        self._tensors = batch.tensors
        self._orders = [order.clone() for order in orders]
        self._rows: list[Sums] = []

        def run() -> None:
            self._rows = list(updates(iter(self._orders)))

        # a capture runs the updates before, which must leave no trace
        copies = [(tensor, tensor.clone()) for tensor in memory]
        states = [(each, each.get_state()) for each in generators]
        self._replay = captured(stream, run, what="update", generators=[g for g, _ in states])
        for tensor, copy in copies:
            tensor.copy_(copy)
        for generator, state in states:
            generator.set_state(state)

    def fits(self, batch: Batch) -> bool:
        """Whether the batch has the same shapes."""
        return [each.shape for each in batch.tensors] == [each.shape for each in self._tensors]

    def run(self, batch: Batch, orders: Iterable[Tensor]) -> list[Sums]:
        """The figures of the updates of a batch, which the next run changes.

        Args:
            batch: in the memory of the first one, or it is copied there.
        """
        pairs = [*zip(self._tensors, batch.tensors, strict=True)]
        for mine, its in (*pairs, *zip(self._orders, orders, strict=True)):
            if mine.data_ptr() != its.data_ptr():
                mine.copy_(its)
        self._replay()
        return self._rows
