"""The trainer: sockets, training queue, workers and checkpoints."""

from __future__ import annotations

import logging
import time

from aclearn.learning import ParameterStore, RecentObservations, TrainingQueue
from aclearn.runs import claim_generation
from aclearn.telemetry import WaitMeter
from aclearn.types import Unroll
from services.policy.factory import architecture_of
from services.role.automatic import settle_folder, settled
from services.role.context import RoleContext
from services.role.loop import Role
from services.role.seeds import Use
from services.role.worker_pool import WORKER_WAITS_S, Step, WantedWorkers, WorkerPool
from services.start.warm_start import warm_start
from services.trainer.checkpoint_record import refuse_lost_learning
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.core import Trainer
from services.trainer.server import TrainerServer
from services.trainer.weight_sharing import allocator_for, post_weights

_LOGGER = logging.getLogger(__name__)

#: Seconds for the workers' last updates, and for the last heartbeat.
_LAST_UPDATE_WITHIN_S, _CLOSE_WITHIN_S = 5.0, 3.0


def make_step(
    trainer: Trainer,
    queue: TrainingQueue[Unroll],
    unrolls_per_batch: int,
    *,
    timeout_s: float = WORKER_WAITS_S,
) -> Step:
    """A worker's step: take a batch from the queue and learn from it. Waits at most `timeout_s`."""
    worker = trainer.learner.make_worker()

    def step(meter: WaitMeter) -> bool:
        with meter.waiting("unrolls"):
            unrolls = queue.take(unrolls_per_batch, timeout_s=timeout_s)
        if unrolls:
            trainer.learn(unrolls, worker)
        return bool(unrolls)

    return step


def make_trainer(context: RoleContext) -> Role:
    """The trainer's role: with environments of its own, or with actors."""
    _settle(context)
    if context.config.resident.envs is None:
        return TrainerRole(context)
    from services.trainer.resident_role import ResidentRole  # needs Warp

    return ResidentRole(context)


def _settle(context: RoleContext) -> None:
    """Settle what is `auto`, in the run's folder too; `aclearn train` has settled it before."""
    if context.folder is None or context.env_spec is None:
        return
    context.config, chosen = settled(context.config, context.env_spec)
    if chosen:
        settle_folder(context.folder, context.config)
    for text in chosen:
        _LOGGER.info("event=chosen detail=%r", text)


class TrainerRole:
    """Runs the trainer until it is stopped; at the end it writes a checkpoint."""

    def __init__(self, context: RoleContext) -> None:
        config, folder, spec = context.config, context.folder, context.env_spec
        if folder is None or spec is None:
            raise ValueError("the trainer needs a run folder and the spec of the environments")
        self._context, self._folder = context, folder
        architecture = architecture_of(config, spec)
        store = ParameterStore()
        generation = claim_generation(folder)
        self._trainer = trainer = Trainer(config, spec, architecture, store, generation=generation)
        self._checkpoints = TrainerCheckpoints(
            trainer,
            folder,
            config.run,
            start=lambda: warm_start(config, architecture),
            clock=context.wall_clock,
        )
        self._checkpoints.restore_or_start()
        self._posted = None
        if not context.inline:
            allocate = allocator_for(config, trainer.device)
            self._posted = post_weights(allocate, architecture.acting(), context.monitor)
        if self._posted is not None:
            trainer.buffer = self._posted.buffer
        trainer.publish()
        size = config.trainer.unrolls_per_batch
        self._queue = queue = TrainingQueue[Unroll](
            max_bytes=config.trainer.queue_bytes,
            max_items=config.trainer.queue_batches * size,
            batch_items=size,
        )
        timeout_s = 0.0 if context.inline else WORKER_WAITS_S
        self._pool = WorkerPool(
            lambda: make_step(trainer, queue, size, timeout_s=timeout_s),
            name="trainer",
            inline=context.inline,
        )
        self._server = TrainerServer(
            context,
            admission=trainer.admission,
            queue=queue,
            store=store,
            generation=generation,
            recent=RecentObservations(
                spec.observation, seed=context.seeds(generation).number(Use.OBSERVATIONS)
            ),
            heartbeat_fields=self._checkpoints.heartbeat_fields,
            workers=WantedWorkers(self._pool),
            buffer=None if self._posted is None else self._posted.endpoint,
        )
        self._pool.resize(config.trainer.workers)
        if not context.inline:
            self._server.start()
        self._stopped = self._told = False

    @property
    def exit_status(self) -> int:
        """0 if the monitor ended the run, else the signal's."""
        return self._server.exit_status

    def step(self, timeout_s: float) -> bool:
        """As `Role.step`: check the workers and write due checkpoints.

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
        self._offer_best()
        self._checkpoints.write_if_due()
        # started by hand: no parent tells the user
        reached = self._trainer.admission.reached
        if self._context.by_hand and not self._told and reached is not None:
            self._told = True
            _LOGGER.info(
                "event=bound_reached bound=run.%s detail='waits for the monitor to end the "
                "run, which needs the same bound in its configuration'",
                reached,
            )
        self._stopped = bool(self._context.stop) or self._server.stop_reason is not None
        return not self._stopped

    def close(self) -> None:
        """End the workers, write the last checkpoint, send the last heartbeat.

        Raises:
            LearningLost: the checkpoint could not be written, and no parent reports that.
        """
        left = self._queue.close()
        ended = self._pool.close(_LAST_UPDATE_WITHIN_S)
        for unroll in left:
            self._trainer.admission.dropped("shutdown", int(unroll.valid.sum()))
        if ended:  # a hanging thread may hold the weights
            self._offer_best()
        self._checkpoints.write()
        last = self._checkpoints.heartbeat_fields()
        counters = last["counters"]
        if not ended:
            unsaved = counters["unsaved_updates"]
            _LOGGER.error("event=worker_hangs unsaved_updates=%d", unsaved)
        self._server.close(_CLOSE_WITHIN_S)
        if self._posted is not None and ended:  # a hanging thread may still post
            self._posted.close()
        if self._context.by_hand and self._stopped:
            refuse_lost_learning(self._folder, last)

    def _offer_best(self) -> None:
        for mean in self._server.take_best_means():
            self._checkpoints.offer_best(mean)
