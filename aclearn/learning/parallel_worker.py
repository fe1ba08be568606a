"""A worker of several threads on the CPU, for batches of very many small samples."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from torch import Tensor

from aclearn.learning.batch import Batch
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.learning.update_report import GradientSums
from aclearn.policies import Architecture

#: Fewer samples than this are not worth a thread.
_LEAST_SAMPLES = 1024


class ParallelWorker(GradientWorker):
    """Differentiates neighbouring parts of a batch at the same time, each on its own copy.

    The sum of the parts' gradients depends on the number of threads in its last digits only.

    Args:
        architecture: of the policy.
        threads: their number, the calling one included; at least 2.
        settings: as of `GradientWorker`; the device is the CPU.
    """

    def __init__(self, architecture: Architecture, *, threads: int, **settings: Any) -> None:
        super().__init__(architecture, **settings)
        self._helpers = [GradientWorker(architecture, **settings) for _ in range(threads - 1)]
        self._pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="gradient")

    def watch(self, check: Callable[[], None]) -> None:
        """As `GradientWorker.watch`, in every thread."""
        super().watch(check)
        for helper in self._helpers:
            helper.watch(check)

    def refresh(
        self,
        weights: list[Tensor],
        *,
        advantage_scale: float | Tensor = 1.0,
        loss_scale: float = 1.0,
    ) -> None:
        """As `GradientWorker.refresh`, of every copy."""
        super().refresh(weights, advantage_scale=advantage_scale, loss_scale=loss_scale)
        for helper in self._helpers:
            helper.refresh(weights, advantage_scale=advantage_scale, loss_scale=loss_scale)

    def differentiate(self, batch: Batch, *, of: int | None = None) -> GradientSums:
        """As `GradientWorker.differentiate`."""
        samples = batch.actions.shape[0] * batch.width
        count = min(1 + len(self._helpers), max(1, samples // _LEAST_SAMPLES))
        first, *others = batch.cut(count)
        pairs = list(zip(self._helpers, others, strict=False))
        steps = batch.steps if of is None else of
        running = [self._pool.submit(w.differentiate, b, of=steps) for w, b in pairs]
        try:
            sums = super().differentiate(first, of=steps)
        finally:
            wait(running)  # they read the batch
        for future, (worker, _) in zip(running, pairs, strict=True):
            sums = sums.plus(future.result())
            for mine, its in zip(self._parameters, worker.gradients(), strict=True):
                if mine.grad is not None and its is not None:
                    mine.grad.add_(its)
        return sums

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
