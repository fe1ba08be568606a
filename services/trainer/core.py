"""The trainer: learns from unrolls and publishes weights."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aclearn.config import Config
from aclearn.errors import CheckpointError
from aclearn.learning import (
    Batch,
    BatchStopped,
    GradientWorker,
    Learner,
    Minibatches,
    ParameterStore,
    StepLedger,
    UpdateReport,
    make_objective,
)
from aclearn.learning.gradient_worker import CHUNK_SAMPLES
from aclearn.policies import Architecture, halves_pay
from aclearn.policies.devices import choose_amp, choose_device
from aclearn.shared_weights import SeqlockBuffer
from aclearn.telemetry import part
from aclearn.types import EnvSpec, PolicyVersion, Unroll
from services.policy.factory import unroll_spec_of
from services.trainer.admission import UnrollAdmission
from services.trainer.gauges import (
    ChainSteps,
    TrainerCounters,
    compressed_share,
    mean_gauges,
    steps_by_chain,
)

_LOGGER = logging.getLogger(__name__)

#: Updates in a row with a non-finite gradient after which the trainer fails.
_MOST_REFUSED_UPDATES = 20
#: Longest wait of a snapshot for an update to end; most take milliseconds.
_SNAPSHOT_WITHIN_S = 3.0


@dataclass(frozen=True)
class Snapshot:
    """The contents of a checkpoint; `return_mean_100` in its state marks the best."""

    tensors: dict[str, NDArray[Any]]
    state: dict[str, Any]


class Trainer:
    """The policy, its counters, and the effect of a batch on them. No socket, no thread.

    Several worker threads may call `learn` at a time, each with its own worker: they compute
    gradients in parallel and change the weights under `learner.lock`.

    Args:
        config: of the run.
        spec: of the environments.
        architecture: of the policy.
        store: gets published weights.
        generation: claimed for this trainer; see `claim_generation`.
        chunk_samples: as of `GradientWorker`.

    Attributes:
        architecture: of the policy.
        device: of the learner.
        buffer: gets published weights too, for roles that can map it; None without such roles.
    """

    buffer: SeqlockBuffer | None = None

    def __init__(
        self,
        config: Config,
        spec: EnvSpec,
        architecture: Architecture,
        store: ParameterStore,
        *,
        generation: int = 0,
        chunk_samples: int = CHUNK_SAMPLES,
    ) -> None:
        self._config, self._spec, self._store = config, spec, store
        self.architecture = architecture
        trainer = config.trainer
        # bit-reproducible only on the CPU
        self.device = choose_device("cpu" if config.run.deterministic else trainer.device)
        # each worker is a thread; torch's pool would compete with them
        torch.set_num_threads(1)
        torch.manual_seed(config.run.seed)
        self.learner = Learner(
            architecture,
            objective=make_objective(
                config.loss,
                config.correctors,
                behaviour_parameters=config.actors.behaviour_parameters,
                critic=config.policy.critic,
            ),
            optimiser=config.optimiser,
            device=self.device,
            amp_dtype=choose_amp(
                trainer.amp, self.device, pays=halves_pay(architecture.observation)
            ),
            channels_last=trainer.channels_last,
            compiled=trainer.compile,
            chunk_samples=chunk_samples,
            seed=config.run.seed,
        )
        self._order = torch.Generator().manual_seed(config.run.seed)  # of minibatches
        self.generation = generation
        self.counters = TrainerCounters()
        self.admission = self._make_admission(StepLedger())
        self._refused_in_a_row = 0
        self._gauges: dict[str, float] = {}
        self._chain_steps = ChainSteps()

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of an earlier trainer.

        Raises:
            KeyError, TypeError, ValueError: a part is missing.
            CheckpointError: it does not fit this trainer.
        """
        tensors, state = snapshot.tensors, snapshot.state
        self.counters = TrainerCounters(**state["counters"])
        torch.set_rng_state(torch.from_numpy(tensors["random/torch"].copy()))
        self._order.set_state(torch.from_numpy(tensors["random/minibatches"].copy()))
        self.learner.load_state_tensors(dict(tensors))
        self.admission = self._make_admission(StepLedger.from_state(state["ledger"]))
        self._look_at_bound()

    def snapshot(self, return_mean: float | None = None) -> Snapshot:
        """The present state, for a later trainer.

        Args:
            return_mean: of 100 episodes, for the best one so far.

        Raises:
            CheckpointError: an update hangs, so that the weights cannot be read.
        """
        # weights and counters of the same moment; workers wait for the copy only
        lock = self.learner.lock
        if not lock.acquire(timeout=_SNAPSHOT_WITHIN_S):
            raise CheckpointError(f"an update has not ended for {_SNAPSHOT_WITHIN_S:g} s")
        try:
            tensors, state = self.learner.state_tensors(), self._state()
        finally:
            lock.release()
        tensors["random/torch"] = np.array(torch.get_rng_state().numpy())
        tensors["random/minibatches"] = np.array(self._order.get_state().numpy())
        return Snapshot(tensors, state | {"return_mean_100": return_mean})

    def publish(self) -> None:
        """Publish the present weights under `counters.policy_version`."""
        with self.learner.lock:
            at = PolicyVersion(self.generation, self.counters.policy_version)
            if self.buffer is not None:
                self.buffer.post(at, list(self.learner.published.values()))
            self._store.publish(at, self.learner.snapshot())

    def learn(self, unrolls: list[Unroll], worker: GradientWorker | None = None) -> None:
        """Learn from admitted unrolls, then publish.

        The batch is split into `trainer.minibatches` (see `Minibatches`); `trainer.epochs` passes
        go over it, fewer if the loss ends them, and each minibatch of each pass is one update, up
        to `run.max_updates`. Steps that have not entered an update by then, by an error or by a
        stop of the worker's `watch`, count as dropped.

        Args:
            unrolls: of one batch.
            worker: of the calling thread; None if there is only one thread.
        """
        worker = self.learner.own_worker if worker is None else worker
        self._account(
            sum(int(unroll.valid.sum()) for unroll in unrolls), self._learn(unrolls, worker)
        )

    def learn_batch(self, batch: Batch, worker: GradientWorker, *, chain: str = "none") -> None:
        """The same of a batch whose new steps are admitted.

        Args:
            batch: of steps by one chain's policies.
            worker: of the calling thread.
            chain: its id.
        """
        steps = batch.new_steps
        self._account(steps, self._learn_batch(batch, worker, {chain: steps}))

    def _account(self, unaccounted: int, learning: Iterator[int]) -> None:
        """Learn; steps that were neither learned nor dropped count as dropped."""
        try:
            for steps in learning:
                unaccounted -= steps
        except BaseException:
            if unaccounted > 0:
                self.admission.dropped("worker_failed", unaccounted)
            raise
        if unaccounted > 0:
            reason = "max_updates" if self._finished else "shutdown"
            self.admission.dropped(reason, unaccounted)

    def _learn(self, unrolls: list[Unroll], worker: GradientWorker) -> Iterator[int]:
        if self._finished:
            return
        with part("batch"):
            batch = worker.assemble(unrolls, self._spec.observation)
        yield from self._learn_batch(batch, worker, steps_by_chain(unrolls))

    def _learn_batch(
        self, batch: Batch, worker: GradientWorker, chain_steps: Mapping[str, int]
    ) -> Iterator[int]:
        """Yields the number of steps each time some are learned or dropped."""
        if self._finished:
            return
        try:
            batch = self.learner.prepare(batch, worker)
        except BatchStopped:
            return
        if batch.steps == 0:
            return
        lags = self.counters.policy_version - batch.versions[batch.valid_on_host]
        reports, observed = [], []
        trainer = self._config.trainer
        minibatches = Minibatches(
            batch, count=trainer.minibatches, passes=trainer.epochs, generator=self._order
        )
        with suppress(BatchStopped):  # the updates until then stay
            for index, minibatch in minibatches:
                report = self._update(minibatch, worker, first_pass=index == 0)
                if report is None:
                    break
                if index == 0:
                    yield minibatch.new_steps
                if not report.applied:
                    minibatches.refuse(minibatch)
                    self._refuse(report)
                    continue
                reports.append(report)
                if index == 0:
                    observed.append(self.learner.observed(minibatch))
                if self.learner.ends_batch(report):
                    minibatches.end()
        self.learner.note_learned(observed)
        self._end_batch(reports, lags, batch.steps, chain_steps, ended=minibatches.ended)

    def _end_batch(
        self,
        reports: list[UpdateReport],
        lags: NDArray[np.int64],
        steps: int,
        chain_steps: Mapping[str, int],
        *,
        ended: bool = False,
    ) -> None:
        """Count a learned batch and publish the new version, if an update changed anything."""
        with self.learner.turn():
            self.counters.batches += 1
            self.counters.ended_batches += ended
            self._chain_steps.add(chain_steps)
            if not reports:
                return
            self.counters.policy_version += 1
            with part("publish"):
                self.publish()
            self._gauges = {
                **mean_gauges(reports),
                "lag_mean": float(lags.mean()),
                "lag_max": float(lags.max()),
                "batch_steps": float(steps),
                "compressed_share": compressed_share(chain_steps),
            }

    @property
    def _finished(self) -> bool:
        """Whether the run has made all its updates."""
        most = self._config.run.max_updates
        return most is not None and self.counters.updates >= most

    def _update(
        self, batch: Batch, worker: GradientWorker, *, first_pass: bool
    ) -> UpdateReport | None:
        """One update; None if the run has made its last one."""
        learner = self.learner
        sums = learner.differentiate(batch, worker)
        with learner.turn(), part("optimiser"):
            if self._finished:  # meanwhile another worker may have made the last one
                return None
            learned_steps = self.admission.learned_steps
            report = learner.apply(worker, sums, learned_steps=learned_steps)
            self._count(report, batch.new_steps, first_pass=first_pass)
        return report

    def _count(self, report: UpdateReport, steps: int, *, first_pass: bool) -> None:
        """Count an update, and the fate of its steps in the first pass."""
        if report.applied:
            self._refused_in_a_row = 0
            self.counters.updates += 1
            self._look_at_bound()
        if first_pass and report.applied:
            self.admission.learned(steps)
        elif first_pass:
            self.admission.dropped("nonfinite_gradient", steps)

    def _look_at_bound(self) -> None:
        if self._finished:
            self.admission.reached = "max_updates"

    def _refuse(self, report: UpdateReport) -> None:
        _LOGGER.error("event=update_refused gradient_norm=%s", report.metrics["gradient_norm"])
        with self.learner.lock:
            self.counters.refused_updates += 1
            self._refused_in_a_row += 1
        if self._refused_in_a_row >= _MOST_REFUSED_UPDATES:
            raise FloatingPointError(
                f"{_MOST_REFUSED_UPDATES} updates in a row had a gradient that is not finite: "
                "lower optimiser.learning_rate or clip rewards (env.clip_rewards)"
            )

    def heartbeat_fields(self) -> dict[str, Any]:
        """Counters, dropped steps and gauges of a heartbeat, at the same moment."""
        # without the lock: a heartbeat must not wait for an update. `updates` may be one ahead.
        counters, dropped = self.admission.counters()
        counters |= vars(self.counters)
        counters |= {"generation": self.generation, **self._chain_steps.counters()}
        return {"counters": counters, "dropped": dropped, "gauges": dict(self._gauges)}

    def _state(self) -> dict[str, Any]:
        return {
            "architecture": self.architecture.digest(),
            "architecture_spec": self.architecture.to_dict(),
            "environment": self._spec.of_environment(),
            "generation": self.generation,
            "counters": dict(vars(self.counters)),
            "ledger": self.admission.state(),
        }

    def _make_admission(self, ledger: StepLedger) -> UnrollAdmission:
        return UnrollAdmission(
            ledger,
            spec=unroll_spec_of(self._config, self._spec),
            max_lag_versions=self._config.trainer.max_lag_versions,
            max_env_steps=self._config.run.max_env_steps,
            ahead=self._config.actors.max_in_flight_unrolls + self._config.actors.groups,
        )
