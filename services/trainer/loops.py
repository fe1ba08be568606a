"""How a trainer's process works: with workers in threads, or in turns with its environments."""

from __future__ import annotations

import time
from typing import Any, Protocol

from typing_extensions import override

from aclearn.control.directives import SaveBest
from aclearn.learning import StopCheck, TrainingQueue
from aclearn.telemetry import WaitMeter, measure_here
from aclearn.types import Unroll
from services.policy.factory import unroll_spec_of
from services.role.context import RoleContext
from services.role.metrics import RoleMetrics
from services.role.worker_pool import WORKER_WAITS_S, Step, WorkerPool
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.server import TrainerServer
from services.trainer.trainer import Trainer
from services.trainer.weight_sharing import allocator_for, share_weights

#: Seconds for the workers' last updates, and for the last heartbeat.
_LAST_UPDATE_WITHIN_S, _CLOSE_WITHIN_S = 5.0, 3.0
#: Seconds from one look at the monitor's messages to the next, within a batch.
_ASK_EVERY_S = 0.05
#: Seconds for the rest of a batch when the run was stopped: a run that learns a whole last batch
#: is continued with the same bits.
_END_BATCH_WITHIN_S = 1.0


class Loop(Protocol):
    """Lets a trainer learn, and talks with the monitor."""

    @property
    def stopped(self) -> bool:
        """Whether the monitor or a signal stops the trainer."""

    @property
    def exit_status(self) -> int:
        """0 if the monitor ended the run, else the signal's."""

    def step(self, timeout_s: float) -> None:
        """Work, or let others work, for about `timeout_s`."""

    def end(self) -> bool:
        """End the workers; whether they ended in time."""

    def close(self) -> None:
        """Send the last heartbeat and close all."""


def make_step(trainer: Trainer, *, timeout_s: float = WORKER_WAITS_S) -> Step:
    """A worker's step: learn a batch. Waits at most `timeout_s` for it."""
    worker = trainer.make_worker()
    return lambda meter: trainer.step(timeout_s, worker)


class QueueLoop(Loop):
    """Workers learn what the sockets' thread puts into the queue; inline, both take turns.

    Args:
        context: of the trainer.
        trainer: learns from the queue.
        checkpoints: its heartbeat fields are sent.
        queue: of unrolls.
    """

    def __init__(
        self,
        context: RoleContext,
        trainer: Trainer,
        checkpoints: TrainerCheckpoints,
        queue: TrainingQueue[Unroll],
    ) -> None:
        config, spec = context.config, context.run.env_spec
        assert spec is not None
        self._context, self._published, endpoint = context, trainer.published, None
        if not context.inline:
            allocate = allocator_for(config, trainer.learner.device)
            acting = trainer.learner.architecture.acting()
            endpoint = share_weights(trainer.published, allocate, acting, context.run.monitor)
        timeout_s = 0.0 if context.inline else WORKER_WAITS_S
        self._pool = WorkerPool(
            lambda: make_step(trainer, timeout_s=timeout_s), name="trainer", inline=context.inline
        )
        trainer.publish()
        self._server = TrainerServer(
            context,
            trainer,
            spec=unroll_spec_of(config, spec),
            queue=queue,
            heartbeat_fields=checkpoints.heartbeat_fields,
            save_best=checkpoints.offer_best,
            workers=self._pool,
            shared_weights=endpoint,
        )
        self._pool.resize(config.trainer.workers)
        if not context.inline:
            self._server.start()
        self._ended = True

    @property
    @override
    def stopped(self) -> bool:
        return bool(self._context.stop) or self._server.stop_reason is not None

    @property
    @override
    def exit_status(self) -> int:
        return self._server.exit_status

    @override
    def step(self, timeout_s: float) -> None:
        """Work for about `timeout_s`.

        Raises:
            RuntimeError: workers failed three times in a row, or the socket thread died.
        """
        if self._context.inline:
            self._server.step(timeout_s)
        else:
            time.sleep(timeout_s)
        if self._server.failure is not None:
            raise RuntimeError("the thread of the trainer's sockets died") from self._server.failure
        self._pool.step()

    @override
    def end(self) -> bool:
        self._ended = self._pool.close(_LAST_UPDATE_WITHIN_S)
        return self._ended

    @override
    def close(self) -> None:
        self._server.close(_CLOSE_WITHIN_S)
        if self._ended:  # a hanging thread may still post
            self._published.close()


class OwnLoop(Loop):
    """One thread plays, learns, and sends heartbeats in between.

    Args:
        context: of the trainer.
        trainer: plays.
        checkpoints: its heartbeat fields are sent.
    """

    def __init__(
        self, context: RoleContext, trainer: Trainer, checkpoints: TrainerCheckpoints
    ) -> None:
        self._trainer, self._checkpoints, self._inline = trainer, checkpoints, context.inline
        self._meter = WaitMeter()
        self._metrics = RoleMetrics(None if context.inline else self._meter)
        self._monitor = context.join(
            self._heartbeat,
            on={SaveBest: lambda best: checkpoints.offer_best(best.return_mean)},
        )
        self._worker = trainer.make_worker()
        if not context.inline:  # a batch must not depend on a real clock
            self._worker.watch(StopCheck(self._batch_goes_on))
        trainer.publish()
        self._stopped = False
        self._ask_at, self._end_batch_at = 0.0, float("inf")

    @property
    @override
    def stopped(self) -> bool:
        return self._stopped

    @property
    @override
    def exit_status(self) -> int:
        return self._monitor.exit_status

    @override
    def step(self, timeout_s: float) -> None:
        self._stopped = not self._monitor.goes_on(self._meter)
        if self._stopped:
            return
        measure_here(self._meter)
        until = time.monotonic() + timeout_s
        while not self._trainer.over:
            self._trainer.step(0.0, self._worker)
            if self._inline or time.monotonic() >= until:
                return
        time.sleep(timeout_s)

    @override
    def end(self) -> bool:
        self._worker.close()
        return True

    @override
    def close(self) -> None:
        if self._stopped:  # not after an error, which counts as a death
            self._monitor.leave()

    def _batch_goes_on(self) -> bool:
        """Send due heartbeats within a batch; False a little after the run was stopped."""
        now = time.monotonic()
        if now >= self._ask_at:
            self._ask_at = now + _ASK_EVERY_S
            if not self._monitor.goes_on(self._meter):
                self._end_batch_at = min(self._end_batch_at, now + _END_BATCH_WITHIN_S)
        return now < self._end_batch_at

    def _heartbeat(self) -> Any:
        fields = self._checkpoints.heartbeat_fields()
        counters = fields.pop("counters")
        counters["predictions"] = counters["env_steps"]
        return self._metrics.heartbeat(counters=counters, **self._trainer.take_episodes(), **fields)
