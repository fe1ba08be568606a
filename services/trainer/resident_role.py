"""The trainer's role where environments are on its own device."""

from __future__ import annotations

import time
from typing import Any

from aclearn.algorithms.ddpg import DDPGConfig
from aclearn.config import LossConfig
from aclearn.runs import claim_generation
from aclearn.telemetry import WaitMeter, measure_here
from services.policy.factory import architecture_of
from services.role.context import RoleContext
from services.role.metrics import RoleMetrics
from services.start.warm_start import warm_start
from services.trainer.checkpoint_record import refuse_lost_learning
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.resident import ResidentTrainer

#: Seconds from one look at the monitor's messages to the next, within a batch.
_ASK_EVERY_S = 0.05
#: Seconds for the rest of a batch when the run was stopped: a run that learns a whole last batch
#: is continued with the same bits.
_END_BATCH_WITHIN_S = 1.0


def trainer_of(loss: LossConfig) -> type[ResidentTrainer]:
    """The class of the trainer for this loss."""
    if not isinstance(loss, DDPGConfig):
        return ResidentTrainer
    from services.trainer.hddpg import HDDPGTrainer

    return HDDPGTrainer


class ResidentRole:
    """Runs a `ResidentTrainer` until it is stopped; at the end it writes a checkpoint."""

    def __init__(self, context: RoleContext) -> None:
        config, folder, spec = context.config, context.folder, context.env_spec
        if folder is None or spec is None:
            raise ValueError("the trainer needs a run folder and the spec of the environments")
        self._trainer = trainer_of(config.loss)(
            config,
            spec,
            architecture_of(config, spec),
            incarnation=context.incarnation,
            generation=claim_generation(folder),
            threads=1 if context.inline else None,
        )
        self._checkpoints = TrainerCheckpoints(
            self._trainer,
            folder,
            config.run,
            start=lambda: warm_start(config, self._trainer.architecture),
            clock=context.wall_clock,
        )
        self._checkpoints.restore_or_start()
        self._inline, self._by_hand, self._folder = context.inline, context.by_hand, folder
        self._meter = WaitMeter()
        self._metrics = RoleMetrics(None if context.inline else self._meter)
        self._monitor = context.join(self._heartbeat)
        self._stopped = False
        self._ask_at, self._end_batch_at = 0.0, float("inf")

    @property
    def exit_status(self) -> int:
        """0 if the monitor ended the run, else the signal's."""
        return self._monitor.exit_status

    def step(self, timeout_s: float) -> bool:
        """As `Role.step`: play and learn for about `timeout_s`, and write due checkpoints."""
        self._stopped = not self._monitor.goes_on(self._meter)
        if self._stopped:
            return False
        measure_here(self._meter)
        until = time.monotonic() + timeout_s
        while not self._trainer.over:
            if self._inline:  # a batch must not depend on a real clock
                self._trainer.play_and_learn()
            else:
                self._trainer.play_and_learn(self._batch_goes_on)
            if self._inline or time.monotonic() >= until:
                break
        else:
            time.sleep(timeout_s)
        if (mean := self._monitor.take_best_mean()) is not None:
            self._checkpoints.offer_best(mean)
        self._checkpoints.write_if_due()
        return True

    def close(self) -> None:
        """Write the last checkpoint, send the last heartbeat.

        Raises:
            LearningLost: the checkpoint could not be written, and no parent reports that.
        """
        if self._stopped:
            self._checkpoints.write()
            last = self._checkpoints.heartbeat_fields()
            self._monitor.leave()
        self._trainer.close()
        if self._stopped and self._by_hand:
            refuse_lost_learning(self._folder, last)

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
