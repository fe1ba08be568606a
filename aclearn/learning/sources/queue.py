"""Batches of actors' unrolls."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from typing_extensions import override

from aclearn.learning.account import StepAccount
from aclearn.learning.batch import Batch
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.learning.sources.source import BatchSource
from aclearn.learning.training_queue import TrainingQueue
from aclearn.telemetry import part, waiting
from aclearn.types import ObservationSpec, Unroll


class QueueSource(BatchSource):
    """Assembles the oldest unrolls of a queue; for any number of threads.

    Args:
        queue: of unrolls whose steps are in flight.
        burn_in_steps: first steps of an unroll that are not learned.
    """

    def __init__(
        self,
        queue: TrainingQueue[Unroll],
        account: StepAccount,
        *,
        unrolls: int,
        observation: ObservationSpec,
        burn_in_steps: int = 0,
    ) -> None:
        self._queue, self._account = queue, account
        self._count, self._observation = unrolls, observation
        self._burn_in_steps = burn_in_steps

    @override
    def next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        with waiting("unrolls"):
            unrolls = self._queue.take(self._count, timeout_s=timeout_s)
        if not unrolls:
            return None
        chain_steps: Counter[str] = Counter()
        for unroll in unrolls:
            chain_steps.update(unroll.steps_by_chain(after=self._burn_in_steps))
        steps = sum(int(unroll.valid.sum()) for unroll in unrolls)
        with self._account.dropped_on_error(steps), part("batch"):
            batch = worker.assemble(unrolls, self._observation)
        return replace(batch, chain_steps=chain_steps)

    @override
    def close(self) -> None:
        for unroll in self._queue.close():
            self._account.dropped("shutdown", int(unroll.valid.sum()))
