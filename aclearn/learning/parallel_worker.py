"""A worker of several threads on the CPU, for batches of very many small samples."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from aclearn.learning.batch import Batch
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.learning.update_report import Sums
from aclearn.policies import Architecture

#: Fewer samples than this are not worth a thread.
_LEAST_SAMPLES = 1024


class ParallelWorker(GradientWorker):
    """Differentiates neighbouring parts of a batch at the same time, each on its own copy.

    The sum of the parts' gradients depends on the number of threads in its last digits only.

    Args:
        threads: their number, the calling one included; at least 2.
    """

    def __init__(self, architecture: Architecture, *, threads: int, **settings: Any) -> None:
        super().__init__(architecture, **settings)
        self._helpers = [GradientWorker(architecture, **settings) for _ in range(threads - 1)]
        self._pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="gradient")

    @override
    def watch(self, check: Callable[[], None]) -> None:
        super().watch(check)
        for helper in self._helpers:
            helper.watch(check)

    @override
    def refresh(self, weights: list[Tensor], **options: Any) -> None:
        super().refresh(weights, **options)
        for helper in self._helpers:
            helper.refresh(weights, **options)

    @override
    def differentiate(self, batch: Batch, steps: Tensor | int) -> Sums:
        first, *others = self._shares(batch)
        pairs = list(zip(self._helpers, others, strict=False))
        running = [self._pool.submit(worker.differentiate, b, steps) for worker, b in pairs]
        try:
            parts = [super().differentiate(first, steps)]
        finally:
            wait(running)  # they read the batch
        for future, (worker, _) in zip(running, pairs, strict=True):
            parts.append(future.result())
            for mine, its in zip(self.gradient, worker.gradient, strict=True):
                mine += its
        return Sums.joined(parts)

    @override
    def log_probs(self, batch: Batch) -> Tensor:
        first, *others = self._shares(batch)
        pairs = zip(self._helpers, others, strict=False)
        running = [self._pool.submit(worker.log_probs, each) for worker, each in pairs]
        try:
            parts = [super().log_probs(first)]
        finally:
            wait(running)
        return torch.cat([*parts, *(future.result() for future in running)], dim=1)

    @override
    def _at_once(self, batch: Batch) -> bool:
        return len(self._shares(batch)) == 1 and super()._at_once(batch)

    def _shares(self, batch: Batch) -> list[Batch]:
        """The parts of the threads that it is worth having."""
        samples = batch.actions.shape[0] * batch.width
        return batch.cut(min(1 + len(self._helpers), max(1, samples // _LEAST_SAMPLES)))

    @override
    def close(self) -> None:
        self._pool.shutdown()
