"""The trainer's role: one for actors and for environments of its own."""

from __future__ import annotations

import logging
import time
from typing import Any

from typing_extensions import override

from aclearn.errors import RankLost
from aclearn.learning import RecentObservations, StopCheck
from aclearn.learning.ranks import Group, gather_bytes
from aclearn.runs import claim_generation
from aclearn.telemetry import WaitMeter, measure_here
from services.ending.run_ending import refuse_lost_learning
from services.role.automatic import amp_is_open, settle_folder, settled
from services.role.context import RoleContext
from services.role.loop import Role
from services.role.metrics import RoleMetrics
from services.role.torch_checks import amp_here
from services.trainer.build import device_of, make_queue, make_trainers, record_batches
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.forming import join_group
from services.trainer.obeyed import obeyed_by
from services.trainer.server import QueueLoop
from services.trainer.trainer import Trainer
from services.trainer.trainers import Trainers
from services.trainer.warm_start import warm_start
from services.trainer.weights_server import WeightsServer

_LOGGER = logging.getLogger(__name__)

#: Seconds from one look at the monitor's messages to the next, within a batch.
_ASK_EVERY_S = 0.05
#: Seconds for the rest of a batch when the run was stopped: a run that learns a whole last batch
#: is continued with the same bits.
_END_BATCH_WITHIN_S = 1.0
#: Seconds that a rank waits for the others at its end; a hanging one must not cost the checkpoint.
_LEAVE_WITHIN_S = 3.0
#: Seconds from the leave of another rank to the stop of this one, where the run ends.
_STOPPED_WITHIN_S = 4.0


def make_trainer_role(context: RoleContext) -> Role:
    """The role of a trainer, once all of a run's trainers are there.

    Raises:
        GroupError: one is missing, or this one differs from the others.
    """
    _settle(context)
    device = device_of(context.config, context.index)
    group = join_group(context, device)
    if isinstance(group, int):
        return NeverBegun(group)
    return TrainerRole(context, group)


class NeverBegun(Role):
    """A role that was stopped before it could begin."""

    def __init__(self, exit_status: int) -> None:
        self._exit_status = exit_status

    @override
    def step(self, timeout_s: float) -> bool:
        return False

    @override
    def close(self) -> None:
        return

    @property
    def exit_status(self) -> int:
        """0 if the monitor ended the run; see `services.role.monitor_client.exit_status`."""
        return self._exit_status


class TrainerRole:
    """Runs the trainer until it is stopped; at the end rank 0 writes a checkpoint.

    Args:
        group: the ranks of the run, which have all come here.
    """

    def __init__(self, context: RoleContext, group: Group) -> None:
        config, folder, spec = context.config, context.run.folder, context.run.env_spec
        if spec is None or (folder is None and group.rank == 0):
            raise ValueError("the trainer needs a run folder and the spec of the environments")
        self._context, self._folder, self._group = context, folder, group
        queues = {policy: make_queue(config) for policy in config.learning_policies()}
        claimed = b"" if folder is None else b"%d" % claim_generation(folder)
        generation = int(gather_bytes(group, claimed, device_of(config, group.rank))[0])
        self._trainer = trainer = make_trainers(
            config,
            spec,
            queues=queues,
            generation=generation,
            incarnation=context.incarnation,
            threads=1 if context.inline else None,
            group=group,
        )
        self._checkpoints: TrainerCheckpoints | None = None
        if folder is not None:
            self._checkpoints = TrainerCheckpoints(
                trainer,
                folder,
                config.run,
                judge=config.judge,
                test=config.evaluator_test,
                spread=config.evaluator.keep,
                start=lambda: warm_start(
                    config,
                    {name: each.learner.architecture for name, each in trainer.by_policy.items()},
                ),
                clock=context.clocks.wall,
            )
            self._checkpoints.restore_or_start()
            record_batches(trainer, config, folder)
        trainer.share()
        self._loop: QueueLoop | OwnLoop
        if trainer.plays:
            self._loop = OwnLoop(context, trainer, self._checkpoints)
        else:
            self._loop = QueueLoop(context, trainer, self._checkpoints, queues)
        self._stopped = self._told = False
        self._ended: bool | None = None
        self._alone_since: float | None = None

    @property
    def exit_status(self) -> int:
        """0 if the monitor ended the run, else the signal's."""
        return self._loop.monitor.exit_status

    def step(self, timeout_s: float) -> bool:
        """Learn, and write due checkpoints.

        Raises:
            RuntimeError: workers failed three times in a row, or the socket thread died.
            EnvironmentFailure: an environment of its own failed.
            RankLost: another rank has died, or has left although the run goes on.
        """
        try:
            self._loop.step(timeout_s)
        except RankLost as error:
            if not self._loop.stopped or error.__cause__ is not None:  # the rank itself has failed
                raise
            _LOGGER.warning("event=rank_lost reason=%r", str(error))
        self._stopped = self._loop.stopped
        if self._stopped:
            self._group.hurry(_LEAVE_WITHIN_S)
            self._end()
            if self._ended:
                self._trainer.rounds.leave()
            return False
        self._look_at_others()
        if self._checkpoints is not None:
            self._checkpoints.write_if_due()
        # started by hand: no parent tells the user
        reached = self._trainer.accounts.reached
        if self._context.start.by_hand and not self._told and reached is not None:
            self._told = True
            _LOGGER.info(
                "event=bound_reached bound=run.%s detail='waits for the monitor to end the "
                "run, which needs the same bound in its configuration'",
                reached,
            )
        return True

    def close(self) -> None:
        """End the workers, write the last checkpoint, send the last heartbeat.

        Raises:
            LearningLost: the checkpoint could not be written, and no parent reports that.
        """
        ended = self._end()
        if (checkpoints := self._checkpoints) is not None:
            if ended:  # a hanging worker may hold the weights
                checkpoints.copy_best()
            # its environments may be broken, or another rank may have died within an update
            if self._stopped or (self._trainer.rounds.whole and not self._trainer.plays):
                checkpoints.write()
            last = checkpoints.heartbeat_fields()
            if not ended:
                unsaved = last["counters"]["unsaved_updates"]
                _LOGGER.error("event=worker_hangs unsaved_updates=%d", unsaved)
        self._loop.close()
        self._group.close()
        if self._context.start.by_hand and self._stopped and self._folder is not None:
            refuse_lost_learning(self._folder, last)

    def _end(self) -> bool:
        """End the workers; whether they ended in time."""
        if self._ended is None:
            self._trainer.close()
            self._ended = self._loop.end()
            self._trainer.drop_waiting()  # a worker that met the others has put it back
            for each in self._trainer.by_policy.values():
                if each.recorder is not None:
                    each.recorder.close()
        return self._ended

    def _look_at_others(self) -> None:
        if not self._trainer.rounds.over or self._group.size == 1:
            return
        now = self._context.clocks.decisions()
        self._alone_since = self._alone_since or now
        if now - self._alone_since > _STOPPED_WITHIN_S:
            if self._checkpoints is not None:
                self._checkpoints.write()
            raise RankLost(
                "another trainer of this run has left, and the run goes on: all start again"
            )


class OwnLoop:
    """One thread plays, learns, and sends heartbeats in between.

    Args:
        checkpoints: theirs are the heartbeat's fields, and they save the best policy; None: another
            rank saves.
    """

    def __init__(
        self,
        context: RoleContext,
        trainer: Trainer | Trainers,
        checkpoints: TrainerCheckpoints | None,
    ) -> None:
        self._context, self._trainer, self._inline = context, trainer, context.inline
        self._fields = (checkpoints or trainer).heartbeat_fields
        self._meter = WaitMeter()
        # nobody else asks: the policy of its environments is its own
        self._weights: WeightsServer | None = None
        if context.config.evaluator.enabled and checkpoints is not None:
            assert context.run.env_spec is not None
            specs = context.run.env_spec.by_policy(context.config.patterns)
            never = {name: RecentObservations(spec.observation) for name, spec in specs.items()}
            self._weights = WeightsServer(context, trainer, never, checkpoints)
        servers = [self._weights.server] if self._weights else []
        self._metrics = RoleMetrics(None if context.inline else self._meter, servers)
        self.monitor = context.join(
            self._heartbeat,
            {"weights": self._weights.endpoint} if self._weights else {},
            generation=trainer.generation,
            on=obeyed_by(trainer, checkpoints),
        )
        self._worker: Any = trainer.make_worker()  # of this kind of trainer
        if not context.inline:  # a batch must not depend on a real clock
            self._worker.watch(StopCheck(self._batch_goes_on))
            trainer.rounds.group.watch(self._await_others)
        trainer.publish()
        self._ask_at, self._end_batch_at = 0.0, float("inf")

    @property
    def stopped(self) -> bool:
        """Whether the monitor or a signal stops the trainer."""
        return bool(self._context.stop) or self.monitor.stop_reason is not None

    def step(self, timeout_s: float) -> None:
        """Play and learn for about `timeout_s`, one batch at least.

        Raises:
            RankLost: another rank has died, or has not answered in time.
        """
        if not self._goes_on():
            return
        measure_here(self._meter)
        until = time.monotonic() + timeout_s
        while not self._trainer.over:
            self._trainer.step(0.0, self._worker)
            if self._inline or time.monotonic() >= until:
                return
        self._trainer.step(0.0, self._worker)  # for ranks that are not at the bound yet
        time.sleep(timeout_s)

    def end(self) -> bool:
        """End the worker's threads."""
        self._worker.close()
        return True

    def close(self) -> None:
        """Send the last heartbeat."""
        if self.stopped:  # not after an error, which counts as a death
            self.monitor.leave()
        if self._weights is not None:
            self._weights.close()

    def _goes_on(self) -> bool:
        """Exchange due messages; False once the run was stopped."""
        if self._weights is not None:
            self._weights.answer()
        return self.monitor.goes_on(self._meter)

    def _batch_goes_on(self) -> bool:
        """Send due heartbeats within a batch; False a little after the run was stopped."""
        now = time.monotonic()
        if now >= self._ask_at:
            self._ask_at = now + _ASK_EVERY_S
            if not self._goes_on():
                self._end_batch_at = min(self._end_batch_at, now + _END_BATCH_WITHIN_S)
        return now < self._end_batch_at

    def _await_others(self) -> None:
        if not self._batch_goes_on():  # one that hangs must not cost the end in time
            self._trainer.rounds.group.hurry(_LEAVE_WITHIN_S)

    def _heartbeat(self) -> Any:
        fields = self._trainer.with_episodes(self._fields())
        counters = fields.pop("counters")
        counters["predictions"] = counters["env_steps"]
        return self._metrics.heartbeat(counters=counters, **fields)


def _settle(context: RoleContext) -> None:
    """Settle what is `auto`, in the run's folder too; `aclearn train` has settled it before."""
    config, spec = context.config, context.run.env_spec
    if spec is None:
        return
    amp = amp_here(config) if amp_is_open(config, spec) else None
    context.config, chosen = settled(config, spec, amp)
    if chosen and context.run.folder is not None:
        settle_folder(context.run.folder, context.config)
    for text in chosen:
        _LOGGER.info("event=chosen detail=%r", text)
