"""The trainer: learns from unrolls and publishes what it learned."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from aclearn.allocator import keep_freed_memory
from aclearn.config import Config
from aclearn.envs import EnvSpec, read_spec
from aclearn.errors import CheckpointError
from aclearn.learning import (
    Batch,
    Learner,
    ParameterStore,
    RecentObservations,
    TrainingQueue,
    UpdateReport,
    assemble_batch,
    choose_amp,
    choose_device,
)
from aclearn.monitoring import StepLedger, WaitMeter
from aclearn.policies import Architecture, PolicyVersion
from aclearn.runs import RunFolder, load_newest, save_checkpoint
from aclearn.wire import Beat, Unroll
from services.intake import Intake
from services.policies import architecture_of
from services.role import RoleContext
from services.trainer_front import TrainerFront

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
    """What a trainer counts beside the agent steps; saved with a checkpoint."""

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


class Trainer:
    """The policy, its counters, and what one batch does to them. No socket, no thread.

    Args:
        config: of the run.
        spec: of the environments.
        architecture: of the policy.
        store: where new weights are published.
        clock: monotonic seconds, for the cadence of checkpoints.
    """

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
        self._device = choose_device(trainer.device)
        # each worker is one thread of its own: torch's pool would only compete with them
        torch.set_num_threads(1)
        torch.manual_seed(config.run.seed)
        self.learner = Learner(
            architecture,
            loss=config.loss,
            optimiser=config.optimiser,
            device=self._device,
            amp_dtype=choose_amp(trainer.amp, self._device),
            workers=1 if self._device.type == "cuda" else trainer.workers,
            channels_last=trainer.channels_last,
            compiled=trainer.compile,
            seed=config.run.seed,
        )
        self.epoch = 0
        self.counters = TrainerCounters()
        self.intake = self._make_intake(StepLedger())
        self._refused_in_a_row = 0
        self._gauges: dict[str, float] = {}
        self._saved_at = clock()
        self._saved_updates = -1

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
        _LOGGER.info(
            "event=resumed checkpoint=%s epoch=%d updates=%d",
            checkpoint.path.name,
            self.epoch,
            self.counters.updates,
        )
        return True

    def publish(self) -> None:
        """Publish the weights as they are now; the version is the number of updates."""
        at = PolicyVersion(self.epoch, self.counters.updates)
        self._store.publish(at, self.learner.tensors())

    def learn(self, unrolls: list[Unroll]) -> None:
        """Learn from admitted unrolls, then publish.

        The batch is cut into `trainer.minibatches` along B, and gone through `trainer.uses` times;
        each minibatch of each use is one update.
        """
        batch = assemble_batch(unrolls, frame_stack=self._spec.frame_stack, device=self._device)
        minibatches = [m for m in batch.cut(self._config.trainer.minibatches) if m.steps > 0]
        if not minibatches:
            return
        lags = self.counters.updates - batch.versions[batch.valid.cpu().numpy()]
        reports = []
        for use in range(self._config.trainer.uses):
            for minibatch in list(minibatches):
                learned_steps = self.intake.learned_steps
                report = self.learner.update(minibatch, learned_steps=learned_steps)
                if use == 0:
                    self._count(minibatch, report)
                if report.applied:
                    self._refused_in_a_row = 0
                    self.counters.updates += 1
                    reports.append(report)
                else:
                    minibatches.remove(minibatch)
                    self._refuse(report)
        self.counters.batches += 1
        if not reports:
            return
        self.publish()
        self._gauges = {
            **mean_gauges(reports),
            "lag_mean": float(lags.mean()),
            "lag_max": float(lags.max()),
            "batch_steps": float(batch.steps),
            "compressed_share": compressed_share(unrolls),
        }

    def _count(self, batch: Batch, report: UpdateReport) -> None:
        if report.applied:
            self.intake.learned(batch.steps)
        else:
            self.intake.dropped("nonfinite_gradient", batch.steps)

    def _refuse(self, report: UpdateReport) -> None:
        self.counters.refused_updates += 1
        self._refused_in_a_row += 1
        _LOGGER.error("event=update_refused gradient_norm=%s", report.gradient_norm)
        if self._refused_in_a_row >= _MOST_REFUSED_UPDATES:
            raise FloatingPointError(
                f"{_MOST_REFUSED_UPDATES} updates in a row had a gradient that is not finite: "
                "lower optimiser.learning_rate or clip rewards (env.clip_rewards)"
            )

    def checkpoint_if_due(self, folder: RunFolder) -> None:
        """Save when `run.checkpoint_every_s` have passed; a full disk is reported, not fatal."""
        if self._clock() - self._saved_at >= self._config.run.checkpoint_every_s:
            self.checkpoint(folder)

    def claim_epoch(self, folder: RunFolder) -> None:
        """Save this trainer's epoch before anything is published under it.

        A trainer that died before its first checkpoint would otherwise be followed by one of the
        same epoch, whose weights the actors take for older than those that they have.

        Raises:
            CheckpointError: the disk refuses; without a saved epoch nothing may be published.
        """
        self._save(folder, best=False)

    def checkpoint(self, folder: RunFolder, *, best: bool = False) -> None:
        """Save now; an error is logged and the last good checkpoint stays.

        Args:
            folder: of the run.
            best: keep it until a better one comes, whatever else is removed.
        """
        self._saved_at = self._clock()
        if self._saved_updates == self.counters.updates and not best:
            return
        try:
            self._save(folder, best=best)
        except CheckpointError as error:
            _LOGGER.error("event=checkpoint_failed reason=%r", str(error))

    def _save(self, folder: RunFolder, *, best: bool) -> None:
        tensors = self.learner.state_tensors()
        tensors["random/torch"] = np.array(torch.get_rng_state().numpy())
        save_checkpoint(
            folder.checkpoints_dir,
            tensors=tensors,
            state=self._state(),
            label=self.counters.updates,
            keep=self._config.run.checkpoints_kept,
            best=best,
        )
        self._saved_updates = self.counters.updates

    def beat_fields(self) -> dict[str, Any]:
        """Counters, dropped steps and gauges of a beat, of one moment."""
        counters, dropped = self.intake.counters()
        counters |= vars(self.counters)
        counters |= {"epoch": self.epoch, "policy_version": self.counters.updates}
        return {"counters": counters, "dropped": dropped, "gauges": dict(self._gauges)}

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
        )


def run_trainer(context: RoleContext) -> None:
    """Run the trainer until it is told to stop; its last act is a checkpoint."""
    keep_freed_memory()
    config, folder = context.config, context.folder
    if folder is None:
        raise ValueError("the trainer needs a run folder for its checkpoints")
    spec = read_spec(config.env)
    store = ParameterStore()
    trainer = Trainer(config, spec, architecture_of(config, spec), store)
    trainer.resume(folder)
    trainer.claim_epoch(folder)
    trainer.publish()
    queue = TrainingQueue[Unroll](
        max_bytes=config.trainer.queue_bytes,
        max_items=config.trainer.queue_batches * config.trainer.unrolls_per_batch,
    )
    meter = WaitMeter()
    failures: list[BaseException] = []

    def beat(final: bool) -> Beat:
        fields = trainer.beat_fields()
        fields["gauges"]["queue_fill"] = queue.fill
        refused = {f"refused.{reason}": count for reason, count in front.refused.items()}
        fields["gauges"]["refused_messages"] = float(sum(refused.values()))
        fields["counters"] |= refused
        return Beat(
            state="stopping" if final else "learning",
            waits=meter.seconds(),
            episode_returns=[],
            episode_lengths=[],
            final=final,
            note="",
            **fields,
        )

    front = TrainerFront(
        context,
        intake=trainer.intake,
        queue=queue,
        store=store,
        recent=RecentObservations(frame_stack=spec.frame_stack, seed=config.run.seed),
        beat=beat,
        on_failure=failures.append,
    )
    front.start()
    try:
        while not context.stop and front.stop_reason is None and not failures:
            with meter.waiting("unrolls"):
                unrolls = queue.take(config.trainer.unrolls_per_batch, timeout_s=_LOOK_EVERY_S)
            if unrolls:
                trainer.learn(unrolls)
            if front.take_best_request():
                trainer.checkpoint(folder, best=True)
            trainer.checkpoint_if_due(folder)
        if failures:
            raise RuntimeError("the thread of the trainer's sockets died") from failures[0]
    finally:
        for unroll in queue.close():
            trainer.intake.dropped("shutdown", int(unroll.valid.sum()))
        trainer.checkpoint(folder)
        front.close(_CLOSE_WITHIN_S)
        trainer.learner.close()
