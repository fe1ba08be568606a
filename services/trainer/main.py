"""The trainer's process: the sockets' thread, the training queue, and workers that empty it."""

from __future__ import annotations

import logging
import os
import time

from aclearn.errors import LearningLost
from aclearn.launch import PARENT_PID_VARIABLE
from aclearn.learning import ParameterStore, RecentObservations, TrainingQueue
from aclearn.telemetry import WaitMeter
from aclearn.types import Unroll
from services.runtime.monitor_client import exit_status
from services.runtime.policy_factory import architecture_of
from services.runtime.role_context import RoleContext
from services.runtime.worker_pool import Step, WantedWorkers, WorkerPool
from services.trainer.checkpoint_record import lost_learning
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.core import Trainer
from services.trainer.server import TrainerServer
from services.trainer.weight_sharing import allocator_for, post_weights

_LOGGER = logging.getLogger(__name__)

#: Longest wait of a worker for unrolls before it looks whether it is still wanted, and of the
#: process before it looks whether a checkpoint is due.
_LOOK_EVERY_S = 0.1
#: Seconds that the workers' last updates may take, and the goodbye to the monitor.
_LAST_UPDATE_WITHIN_S, _CLOSE_WITHIN_S = 5.0, 3.0


def make_step(trainer: Trainer, queue: TrainingQueue[Unroll], unrolls_per_batch: int) -> Step:
    """A worker's step: take a batch from the queue, learn from it. Waits at most a moment."""
    worker = trainer.learner.make_worker()

    def step(meter: WaitMeter) -> bool:
        with meter.waiting("unrolls"):
            unrolls = queue.take(unrolls_per_batch, timeout_s=_LOOK_EVERY_S)
        if unrolls:
            trainer.learn(unrolls, worker)
        return bool(unrolls)

    return step


def run_trainer(context: RoleContext) -> int:
    """Run the trainer until it is told to stop; its last act is a checkpoint. Its exit status."""
    config, folder, spec = context.config, context.folder, context.env_spec
    if folder is None or spec is None:
        raise ValueError("the trainer needs a run folder and must know what environments look like")
    architecture = architecture_of(config, spec)
    store = ParameterStore()
    trainer = Trainer(config, spec, architecture, store)
    checkpoints = TrainerCheckpoints(trainer, folder, config.run)
    checkpoints.resume()
    checkpoints.claim_generation()
    posted = post_weights(allocator_for(config, trainer.device), architecture, context.monitor)
    if posted is not None:
        trainer.buffer = posted.buffer
    trainer.publish()
    queue = TrainingQueue[Unroll](
        max_bytes=config.trainer.queue_bytes,
        max_items=config.trainer.queue_batches * config.trainer.unrolls_per_batch,
        batch_items=config.trainer.unrolls_per_batch,
    )
    pool = WorkerPool(
        lambda: make_step(trainer, queue, config.trainer.unrolls_per_batch), name="trainer"
    )
    wanted = WantedWorkers(pool)
    failures: list[BaseException] = []

    front = TrainerServer(
        context,
        admission=trainer.admission,
        queue=queue,
        store=store,
        recent=RecentObservations(spec.observation, seed=config.run.seed),
        heartbeat_fields=checkpoints.heartbeat_fields,
        on_failure=failures.append,
        workers=wanted,
        buffer=None if posted is None else posted.endpoint,
    )
    pool.resize(config.trainer.workers)
    front.start()
    # by hand: there is no parent that tells the user
    by_hand, told = PARENT_PID_VARIABLE not in os.environ, False
    try:
        while not context.stop and front.stop_reason is None and not failures:
            time.sleep(_LOOK_EVERY_S)
            pool.check()
            for mean in front.take_best_means():
                checkpoints.offer_best(mean)
            checkpoints.write_if_due()
            if by_hand and not told and trainer.admission.reached is not None:
                told = True
                _LOGGER.info(
                    "event=bound_reached bound=run.%s detail='waits for the monitor to end the "
                    "run; a monitor that was started without this bound does not'",
                    trainer.admission.reached,
                )
        if failures:
            raise RuntimeError("the thread of the trainer's sockets died") from failures[0]
    finally:
        left = queue.close()
        ended = pool.close(_LAST_UPDATE_WITHIN_S)
        for unroll in left:
            trainer.admission.dropped("shutdown", int(unroll.valid.sum()))
        for mean in (
            front.take_best_means() if ended else ()
        ):  # a thread that hangs may hold the weights
            checkpoints.offer_best(mean)
        checkpoints.write()
        if not ended:
            unsaved = checkpoints.heartbeat_fields()["counters"]["unsaved_updates"]
            _LOGGER.error("event=worker_hangs unsaved_updates=%d", unsaved)
        front.close(_CLOSE_WITHIN_S)
        if (
            posted is not None and ended
        ):  # a thread that hangs may still post; it ends with the process
            posted.close()
    if by_hand:
        last = checkpoints.heartbeat_fields()
        lost = lost_learning(
            folder,
            updates=last["counters"]["updates"],
            unsaved_steps=last["counters"]["unsaved_steps"],
            error=last["note"],
        )
        if lost is not None:
            raise LearningLost(lost)
    return exit_status(context.stop, run_is_over=front.run_is_over)
