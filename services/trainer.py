"""The trainer: learns from unrolls and publishes what it learned."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aclearn.config import Config
from aclearn.envs import EnvSpec
from aclearn.errors import CheckpointError
from aclearn.learning import (
    Batch,
    GradientWorker,
    Learner,
    ParameterStore,
    UpdateReport,
    choose_amp,
    choose_device,
)
from aclearn.monitoring import StepLedger, part
from aclearn.policies import Architecture, PolicyVersion
from aclearn.runs import RunFolder, load_best, load_newest, save_checkpoint
from aclearn.sharing import WeightBoard
from aclearn.wire import Unroll
from services.checkpoint_record import CheckpointRecord
from services.intake import Intake

_LOGGER = logging.getLogger(__name__)

#: Longest wait for unrolls before the trainer looks whether it must stop.
_LOOK_EVERY_S = 0.1
#: Updates in a row whose gradient is not finite before the trainer gives itself up.
_MOST_REFUSED_UPDATES = 20
#: Parts of a chain's id that say how a policy is executed, not that it is another one.
_UNCHANGED = {"none", "fuse", "onnx", "torchscript"}
#: Seconds that the goodbye to the monitor may take.
_CLOSE_WITHIN_S = 3.0


@dataclass
class TrainerCounters:
    """What a trainer counts beside the agent steps; saved with a checkpoint.

    Attributes:
        policy_version: publications since the start of the run, one for each learned batch.
        updates: optimiser steps.
        batches: batches that were gone through.
        refused_updates: updates whose gradient was not finite.
    """

    policy_version: int = 0
    updates: int = 0
    batches: int = 0
    refused_updates: int = 0


def mean_gauges(reports: Sequence[UpdateReport]) -> dict[str, float]:
    """The gauges of several updates, each the mean over those that report it."""
    collected: dict[str, list[float]] = {}
    for report in reports:
        for name, value in report.gauges().items():
            collected.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in collected.items()}


def compressed_share(unrolls: Sequence[Unroll]) -> float:
    """Share of the unrolls' steps that were acted on artifacts that a link has changed."""
    counts = [int(unroll.valid.sum()) for unroll in unrolls]
    changed = [set(unroll.chain.split(">")) - _UNCHANGED != set() for unroll in unrolls]
    compressed = sum(c for c, is_changed in zip(counts, changed, strict=True) if is_changed)
    return compressed / max(1, sum(counts))


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds, of one moment; `return_mean_100` in its state marks the best."""

    tensors: dict[str, NDArray[Any]]
    state: dict[str, Any]


def _best_return(folder: RunFolder) -> float | None:
    """Mean return of the best checkpoint; None where there is none, or none that is whole."""
    try:
        best = load_best(folder.checkpoints_dir)
    except CheckpointError as error:
        _LOGGER.warning("event=best_not_read reason=%r", str(error))
        return None
    return None if best is None else float(best.state["return_mean_100"])


class Trainer:
    """The policy, its counters, and what one batch does to them. No socket, no thread.

    `learn` may be called by several worker threads at a time, each with a worker of its own: they
    differentiate at the same time, and what an update changes it changes under `learner.lock`.

    Args:
        config: of the run.
        spec: of the environments.
        architecture: of the policy.
        store: where new weights are published.
        clock: monotonic seconds, for the cadence of checkpoints.

    Attributes:
        device: that it learns on.
        board: where weights are posted as well, for those who can read it; None where nobody can.
    """

    board: WeightBoard | None = None

    def __init__(
        self,
        config: Config,
        spec: EnvSpec,
        architecture: Architecture,
        store: ParameterStore,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._spec, self._architecture = config, spec, architecture
        self._store, self._clock = store, clock
        trainer = config.trainer
        # what is to be bit-reproducible is computed on the CPU, also where auto finds a GPU
        self.device = choose_device("cpu" if config.run.deterministic else trainer.device)
        # each worker is one thread of its own: torch's pool would only compete with them
        torch.set_num_threads(1)
        torch.manual_seed(config.run.seed)
        self.learner = Learner(
            architecture,
            loss=config.loss,
            optimiser=config.optimiser,
            device=self.device,
            amp_dtype=choose_amp(trainer.amp, self.device),
            channels_last=trainer.channels_last,
            compiled=trainer.compile,
            seed=config.run.seed,
        )
        self.epoch = 0
        self.counters = TrainerCounters()
        self.intake = self._make_intake(StepLedger())
        self._refused_in_a_row = 0
        self._gauges: dict[str, float] = {}
        now = clock()
        self._record = CheckpointRecord(config.run.checkpoint_every_s, tried_at=now, saved_at=now)
        #: Mean return of 100 episodes of the best policy so far; None before there is one.
        self.best_return: float | None = None
        self._best: Snapshot | None = None

    def resume(self, folder: RunFolder) -> bool:
        """Continue from the folder's newest whole checkpoint under a new epoch, if there is one.

        Raises:
            CheckpointError: there are checkpoints, but none that can be used.
        """
        checkpoint = load_newest(
            folder.checkpoints_dir, expect_architecture=self._architecture.digest()
        )
        if checkpoint is None:
            return False
        state = checkpoint.state
        try:
            self.epoch = int(state["epoch"]) + 1
            self.counters = TrainerCounters(**state["counters"])
            torch.set_rng_state(torch.from_numpy(checkpoint.tensors["random/torch"].copy()))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{checkpoint.path}: incomplete state: {error!r}") from error
        self.learner.load_state_tensors(dict(checkpoint.tensors))
        self.intake = self._make_intake(StepLedger.from_state(state["ledger"]))
        self._look_at_bound()
        self.best_return = _best_return(folder)
        _LOGGER.info(
            "event=resumed checkpoint=%s epoch=%d version=%d updates=%d",
            checkpoint.path.name,
            self.epoch,
            self.counters.policy_version,
            self.counters.updates,
        )
        return True

    def publish(self) -> None:
        """Publish the weights as they are now, under `counters.policy_version`."""
        with self.learner.lock:
            at = PolicyVersion(self.epoch, self.counters.policy_version)
            if self.board is not None:
                self.board.post(at, self.learner.parameters)
            self._store.publish(at, self.learner.snapshot())

    def learn(self, unrolls: list[Unroll], worker: GradientWorker | None = None) -> None:
        """Learn from admitted unrolls, then publish.

        The batch is cut into `trainer.minibatches` along B, and gone through `trainer.uses` times;
        each minibatch of each use is one update, up to `run.max_updates`. Steps that have not
        entered an update by then, or when something fails, count as dropped.

        Args:
            unrolls: of one batch.
            worker: of the calling thread; None where there is one thread only.
        """
        unaccounted = sum(int(unroll.valid.sum()) for unroll in unrolls)
        try:
            for steps in self._learn(unrolls, worker):
                unaccounted -= steps
        except BaseException:
            if unaccounted > 0:
                self.intake.dropped("worker_failed", unaccounted)
            raise
        if unaccounted > 0:
            self.intake.dropped("max_updates", unaccounted)

    def _learn(self, unrolls: list[Unroll], worker: GradientWorker | None) -> Iterator[int]:
        """Yields the number of steps each time some are accounted for, learned or dropped."""
        if self._finished:
            return
        worker = self.learner.own_worker if worker is None else worker
        with part("batch"):
            batch = worker.assemble(unrolls, frame_stack=self._spec.frame_stack)
            minibatches = [m for m in batch.cut(self._config.trainer.minibatches) if m.steps > 0]
        if not minibatches:
            return
        lags = self.counters.policy_version - batch.versions[batch.mask]
        reports = []
        uses = range(self._config.trainer.uses)
        for use, minibatch in ((use, m) for use in uses for m in list(minibatches)):
            report = self._update(minibatch, worker, first_use=use == 0)
            if report is None:
                break
            if use == 0:
                yield minibatch.steps
            if report.applied:
                reports.append(report)
            else:
                minibatches.remove(minibatch)
                self._refuse(report)
        with self.learner.turn():
            self.counters.batches += 1
            if not reports:
                return
            self.counters.policy_version += 1
            with part("publish"):
                self.publish()
            self._gauges = {
                **mean_gauges(reports),
                "lag_mean": float(lags.mean()),
                "lag_max": float(lags.max()),
                "batch_steps": float(batch.steps),
                "compressed_share": compressed_share(unrolls),
            }

    @property
    def _finished(self) -> bool:
        """Whether this run has made all of its updates."""
        most = self._config.run.max_updates
        return most is not None and self.counters.updates >= most

    def _update(
        self, batch: Batch, worker: GradientWorker, *, first_use: bool
    ) -> UpdateReport | None:
        """One update; None where the run has made its last one."""
        learner = self.learner
        sums = learner.differentiate(batch, worker)
        with learner.turn(), part("optimiser"):
            if self._finished:  # another worker may have made the last one meanwhile
                return None
            learned_steps = self.intake.learned_steps
            report = learner.apply(worker, sums, learned_steps=learned_steps)
            if report.applied:
                self._refused_in_a_row = 0
                self.counters.updates += 1
                self._look_at_bound()
            if first_use and report.applied:
                self.intake.learned(batch.steps)
            elif first_use:
                self.intake.dropped("nonfinite_gradient", batch.steps)
        return report

    def _look_at_bound(self) -> None:
        if self._finished:
            self.intake.reached = "max_updates"

    def _refuse(self, report: UpdateReport) -> None:
        _LOGGER.error("event=update_refused gradient_norm=%s", report.gradient_norm)
        with self.learner.lock:
            self.counters.refused_updates += 1
            self._refused_in_a_row += 1
        if self._refused_in_a_row >= _MOST_REFUSED_UPDATES:
            raise FloatingPointError(
                f"{_MOST_REFUSED_UPDATES} updates in a row had a gradient that is not finite: "
                "lower optimiser.learning_rate or clip rewards (env.clip_rewards)"
            )

    def checkpoint_if_due(self, folder: RunFolder) -> None:
        """Save when `run.checkpoint_every_s` have passed; a full disk is reported, not fatal."""
        if self._record.due(self._clock()):
            self.checkpoint(folder)

    def claim_epoch(self, folder: RunFolder) -> None:
        """Save this trainer's epoch before anything is published under it.

        A trainer that died before its first checkpoint would otherwise be followed by one of the
        same epoch, whose weights the actors take for older than those that they have.

        Raises:
            CheckpointError: the disk refuses; without a saved epoch nothing may be published.
        """
        self._save(folder, self._snapshot())

    def offer_best(self, return_mean: float) -> None:
        """Keep the policy of this moment as the best where `return_mean` is the highest so far.

        It is copied now and written with the next checkpoint.

        Args:
            return_mean: of the run's last 100 episodes.
        """
        if self.best_return is None or return_mean > self.best_return:
            self.best_return = return_mean
            self._best = self._snapshot(return_mean)

    def checkpoint(self, folder: RunFolder) -> None:
        """Save now; an error is reported in heartbeats and the last good checkpoint stays."""
        self._record.tried_at = self._clock()
        try:
            if self._best is not None:  # first: what is written last is what a run goes on from
                self._save(folder, self._best)
                self._best = None
            if self._record.updates != self.counters.updates:
                self._save(folder, self._snapshot())
        except CheckpointError as error:
            if not self._record.error:  # heartbeats count the others
                _LOGGER.warning("event=checkpoint_failed reason=%r", str(error))
            self._record.failed(error, folder.checkpoints_dir)

    def _snapshot(self, return_mean: float | None = None) -> Snapshot:
        # weights and counters of one moment; workers wait for the copy only
        with self.learner.lock:
            tensors, state = self.learner.state_tensors(), self._state()
        tensors["random/torch"] = np.array(torch.get_rng_state().numpy())
        return Snapshot(tensors, state | {"return_mean_100": return_mean})

    def _save(self, folder: RunFolder, snapshot: Snapshot) -> None:
        updates = snapshot.state["counters"]["updates"]
        save_checkpoint(
            folder.checkpoints_dir,
            tensors=snapshot.tensors,
            state=snapshot.state,
            label=updates,
            keep=self._config.run.checkpoints_kept,
            best=snapshot.state["return_mean_100"] is not None,
        )
        learned_steps = snapshot.state["ledger"]["learned_steps"]
        self._record.saved(self._clock(), updates=updates, learned_steps=learned_steps)

    def beat_fields(self) -> dict[str, Any]:
        """Counters, dropped steps, gauges and the note of a beat, of one moment."""
        # not under the lock: a beat must not wait for an update. `updates` may be one ahead.
        counters, dropped = self.intake.counters()
        counters |= vars(self.counters)
        counters |= {"epoch": self.epoch}
        record = self._record
        counters |= record.counters(
            updates=counters["updates"], learned_steps=counters["learned_steps"]
        )
        gauges = self._gauges | {"checkpoint_age_s": self._clock() - record.saved_at}
        if self.best_return is not None:
            gauges["best_return"] = self.best_return
        return {"counters": counters, "dropped": dropped, "gauges": gauges, "note": record.error}

    def _state(self) -> dict[str, Any]:
        return {
            "architecture": self._architecture.digest(),
            "architecture_spec": self._architecture.to_dict(),
            "epoch": self.epoch,
            "counters": dict(vars(self.counters)),
            "ledger": self.intake.state(),
        }

    def _make_intake(self, ledger: StepLedger) -> Intake:
        return Intake(
            ledger,
            architecture=self._architecture,
            frame_stack=self._spec.frame_stack,
            unroll_length=self._config.actors.unroll_length,
            max_lag_versions=self._config.trainer.max_lag_versions,
            max_env_steps=self._config.run.max_env_steps,
        )
