"""The trainer's role where environments are on its own device."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from aclearn.config import DDPGConfig, LossConfig
from aclearn.telemetry import WaitMeter, measure_here
from services.runtime.policy_factory import architecture_of
from services.runtime.role_context import RoleContext
from services.runtime.role_metrics import RoleMetrics
from services.runtime.warm_start import start_tensors
from services.trainer.checkpoint_record import refuse_lost_learning
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.resident import ResidentTrainer


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
            threads=1 if context.inline else None,
        )
        self._checkpoints = TrainerCheckpoints(
            self._trainer,
            folder,
            config.run,
            start=partial(start_tensors, config, self._trainer.architecture),
            clock=context.wall_clock,
        )
        self._checkpoints.restore_or_start()
        self._checkpoints.claim_generation()
        self._inline, self._by_hand, self._folder = context.inline, context.by_hand, folder
        self._meter = WaitMeter()
        self._metrics = RoleMetrics(None if context.inline else self._meter)
        self._monitor = context.join(self._heartbeat)
        self._stopped = False

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
            self._trainer.play_and_learn()
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

    def _heartbeat(self) -> Any:
        fields = self._checkpoints.heartbeat_fields()
        counters = fields.pop("counters")
        counters |= {"episodes": self._trainer.episodes, "predictions": counters["env_steps"]}
        return self._metrics.heartbeat(
            counters=counters, episode_returns=self._trainer.new_returns(), **fields
        )
