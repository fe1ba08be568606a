"""The trainer: learns the batches of a source and publishes weights."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aclearn.config import Config
from aclearn.errors import CheckpointError, RankLost, words_of
from aclearn.learning import (
    Accounts,
    ActingPolicies,
    Batch,
    BatchSource,
    GradientWorker,
    Learner,
    PublishedWeights,
    StepAccount,
    UpdateReport,
)
from aclearn.learning.account import OpenBatch
from aclearn.learning.ranks import ALONE, Group, gather_bytes
from aclearn.telemetry import part
from aclearn.telemetry.machine import machine
from aclearn.types import EnvSpec, PolicyVersion
from services.role.seeds import Seeds, Use
from services.trainer.flight_recorder import FlightRecorder
from services.trainer.gauges import (
    ChainSteps,
    CorrectionLog,
    TrainerCounters,
    compressed_share,
    mean_gauges,
)
from services.trainer.rounds import Rounds
from services.trainer.snapshot import Snapshot
from services.trainer.tally import Made

_LOGGER = logging.getLogger(__name__)

#: Updates in a row with a non-finite gradient after which the trainer fails.
_MOST_REFUSED_UPDATES = 20
#: Longest wait of a snapshot for an update to end; most take milliseconds.
SNAPSHOT_WITHIN_S = 3.0


def refuse_if_diverged(refused_in_a_row: int) -> None:
    """Raise `FloatingPointError` after too many updates in a row that were refused."""
    if refused_in_a_row >= _MOST_REFUSED_UPDATES:
        raise FloatingPointError(
            f"{_MOST_REFUSED_UPDATES} updates in a row had a gradient that is not finite: "
            "lower optimiser.learning_rate or clip rewards (env.clip_rewards)"
        )


class Trainer:
    """The policy, its counters, and the effect of a batch on them. No socket, no thread.

    Several worker threads may call `step` at a time, unless the source plays, each with its own
    worker: they compute gradients in parallel and change the weights under `learner.lock`.

    Args:
        generation: claimed for this trainer; see `claim_generation`.
        group: the ranks with which it learns as one; its batches wait for theirs.
        acting: splits the importance ratios of each batch; None: nothing asks for it.

    Attributes:
        rounds: its meetings with the other ranks.
        on_publish: called after each publication, while `learner.lock` is held.
        on_finished: called when it has made all updates of the run.
        by_policy: it, by the name of its policy.
        accounts: its account, as of a run of one policy.
        recorder: keeps the newest batches; None: nothing asks for it.
    """

    def __init__(
        self,
        learner: Learner,
        account: StepAccount,
        source: BatchSource,
        *,
        config: Config,
        spec: EnvSpec,
        published: PublishedWeights,
        generation: int = 0,
        group: Group = ALONE,
        acting: ActingPolicies | None = None,
    ) -> None:
        self._acting = acting
        self.recorder: FlightRecorder | None = None
        self.learner, self.account, self.source = learner, account, source
        self.rounds = Rounds(
            group,
            account,
            learner.device,
            mark=self._mark,
            before_copies=self._average,
            follow=lambda settings: learner.set(**settings),
        )
        self._waiting: Batch | None = None  # until every rank has one
        self.published, self.generation = published, generation
        self.counters = TrainerCounters()
        self.on_publish: Callable[[], None] = lambda: None
        self.on_finished: Callable[[], None] = lambda: account.end("max_updates")
        self.by_policy = {account.policy: self}
        self.accounts = Accounts({account.policy: account})
        self._config, self._spec = config, spec
        self._refused_in_a_row = 0
        self._machine = _machine_of(learner.device)
        self._gauges: dict[str, float] = {}
        self._chain_steps, self._correction = ChainSteps(), CorrectionLog()
        self._fields_at_begin: dict[str, Any] | None = None

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of an earlier trainer.

        Raises:
            KeyError, TypeError, ValueError: a part is missing.
            CheckpointError: it does not fit this trainer.
        """
        tensors = snapshot.tensors
        torch.set_rng_state(torch.from_numpy(tensors["random/torch"].copy()))
        self._take(snapshot)
        self.source.restore(tensors)

    def share(self) -> None:
        """Give the state of rank 0 to every rank, so that all begin with the same weights.

        Random numbers of the other ranks are their own: each has other steps to draw for.
        """
        group = self.rounds.group
        if group.size == 1:
            return
        mine = b""
        if group.rank == 0:
            mine = Snapshot(self.learner.state_tensors(), self._state()).packed()
        first = Snapshot.unpacked(gather_bytes(group, mine, self.learner.device)[0])
        if group.rank > 0:
            self._take(first)
            seed = Seeds(self._config.run.seed, self.generation, group.rank).number(Use.LEARNING)
            for generator in self.learner.state.generators.values():
                generator.manual_seed(seed)
            torch.manual_seed(seed)
        self.rounds.ledgers = first.ledgers(group.size)

    def _take(self, snapshot: Snapshot) -> None:
        self.counters = TrainerCounters(**snapshot.state["counters"])
        self.learner.load_state_tensors(snapshot.tensors)
        self.learner.set(**snapshot.state["settings"])
        self.learner.adopt()
        ledgers = snapshot.ledgers(self.rounds.group.size)
        self.account.restore(ledgers[self.rounds.group.rank])
        self.rounds.ledgers = ledgers
        self._look_at_bound()

    def snapshot(self, *, whole: bool = True) -> Snapshot:
        """The present state, for a later trainer.

        Args:
            whole: with the state of the source, between batches; False: what was learned, with
                which a later trainer's source begins afresh.

        Raises:
            CheckpointError: an update or the source hangs, so that they cannot be read.
        """
        # weights and counters of the same moment; workers wait for the copy only
        lock = self.learner.lock
        if not lock.acquire(timeout=SNAPSHOT_WITHIN_S):
            raise CheckpointError(f"an update has not ended for {SNAPSHOT_WITHIN_S:g} s")
        try:
            tensors, state = self.learner.state_tensors(), self._state()
        finally:
            lock.release()
        try:
            tensors |= self.source.state() if whole else {}
        except TimeoutError as error:
            raise CheckpointError(str(error)) from None  # an OSError, but not of the disk
        tensors["random/torch"] = np.array(torch.get_rng_state().numpy())
        return Snapshot(tensors, state | {"judged": None})

    def publish(self) -> None:
        """Publish the present weights under `counters.policy_version`."""
        with self.learner.lock:
            at = PolicyVersion(self.generation, self.counters.policy_version)
            self.published.publish(at, self.learner.published)
            self.on_publish()

    @property
    def at(self) -> PolicyVersion:
        """The newest published version."""
        return self.published.at

    @property
    def plays(self) -> bool:
        """Whether its batches come from environments of its own."""
        return self.source.plays

    @property
    def digest(self) -> str:
        """A digest of the architecture."""
        return self.learner.architecture.digest()

    def load(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Begin with these tensors of a checkpoint."""
        self.learner.load_state_tensors(tensors)

    @property
    def learned_steps(self) -> int:
        """Agent steps that all ranks have learned."""
        return self.account.learned_steps + self.rounds.learned_elsewhere

    @property
    def over(self) -> bool:
        """Whether a bound is reached, so that nothing more is learned."""
        return self.account.reached is not None

    def set(self, **settings: float) -> None:
        """Learn with these numbers in place of the configuration's, as `Learner.set`.

        With other ranks from their next meeting on: all make the same updates.

        Raises:
            ValueError: the loss has no such number.
        """
        if "entropy_cost" in settings and not self.learner.has_entropy_cost:
            kind = self.learner.objective.config.kind
            raise ValueError(f"loss.kind {kind} has no entropy_cost")
        self.rounds.set(**settings)

    def make_worker(self) -> GradientWorker:
        """A worker for one thread that steps the trainer."""
        alone = self.rounds.group.size == 1  # a CUDA graph cannot wait for other ranks
        captured = self.source.stream if alone else None
        return self.learner.make_worker(self.source.threads, captured=captured)

    def step(self, timeout_s: float, worker: GradientWorker) -> bool:
        """Learn the source's next batch, then publish; False if there is none.

        With other ranks each learns its own when all have one, and keeps it until then.

        Args:
            worker: of the calling thread. Once its check stops the batch, an unfinished rollout
                leaves no trace, and steps that were not learned yet are dropped.

        Raises:
            EnvironmentFailure: a reward or an observation is out of range.
            FloatingPointError: too many updates in a row were refused.
            RankLost: another rank has died.
        """
        if self.source.plays:
            self._fields_at_begin = self.heartbeat_fields()
        try:
            with self.in_stream():
                batch = self._next(timeout_s, worker)
                if batch is not None:
                    with self._together():
                        self.learn(batch, worker)
        finally:
            self._fields_at_begin = None
        return batch is not None

    def _next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        batch, self._waiting = self._waiting, None
        if batch is None and not (self.source.plays and self.over):
            batch = self.source.next(timeout_s, worker)
        if self.rounds.group.size == 1:
            return batch
        if batch is not None and not int(batch.steps):  # others cannot wait for nothing
            self.source.learned(batch)
            batch = None
        with self._together():
            if self.rounds.meet(batch is not None):
                return batch
        self._waiting = batch
        return None

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """An error within a batch ends this rank, since the others wait for its part."""
        try:
            yield
        except Exception as error:
            if self.rounds.group.size == 1 or isinstance(error, RankLost):
                raise
            raise RankLost(f"this rank failed within a batch: {words_of(error)}") from error

    def leave(self) -> None:
        """Tell the other ranks that this one ends; its accounts are those of a checkpoint then."""
        try:
            with self._together():
                self.rounds.meet(False, leaves=True)
        except RankLost as error:
            _LOGGER.warning("event=rank_lost reason=%r", str(error))

    def close(self) -> None:
        """Give up the source; steps of a batch that no update has had count as dropped."""
        self.source.close()
        self.drop_waiting()

    def drop_waiting(self) -> None:
        """Drop the batch that waits for other ranks; for the end, once no worker keeps it."""
        if self._waiting is not None:
            reason = self.account.reached or "shutdown"
            self.account.dropped(reason, int(self._waiting.new_steps))
            self._waiting = None

    @contextlib.contextmanager
    def in_stream(self) -> Iterator[None]:
        """The source's stream as the current one, behind and before all other work."""
        if (stream := self.source.stream) is None:
            yield
            return
        # others write and read weights and environments in the default stream
        torch.cuda.synchronize(stream.device)
        with stream.scope():
            yield
        stream.wait()

    def learn(self, batch: Batch, worker: GradientWorker | None = None) -> None:
        """Learn from a batch of the source, then publish.

        Args:
            worker: of the calling thread; None if there is only one thread.
        """
        reports = self.update(batch, worker)
        if any(report.applied for report in reports):
            with self.learner.turn():
                self.raise_version(self.counters.policy_version + 1)
        self.source.learned(batch, reports[-1].errors if reports else None)

    def update(self, batch: Batch, worker: GradientWorker | None = None) -> list[UpdateReport]:
        """Make the updates of a batch, and count them.

        The batch is split into `trainer.minibatches` (see `Minibatches`); `trainer.epochs` passes
        go over it, fewer if the loss ends them, and each minibatch of each pass is one update, up
        to `run.max_updates`. Steps that have not entered an update by then, by an error or by a
        stop of the worker's check, count as dropped.
        """
        trainer = self._config.trainer
        first = trainer.burn_in_steps
        valid = batch.valid[first:].cpu().numpy()
        lags = self.counters.policy_version - batch.versions[first:][valid]
        with self.account.batch(int(batch.new_steps), lambda: self.finished) as open_batch:
            if self._acting is not None:
                with part("forward"):
                    batch = replace(batch, acting_log_prob=self._acting.log_probs(batch))
            if first:  # only their states are of use
                open_batch.dropped("burn_in", int(batch.valid[:first].sum()))
            self.learner.adopt()
            if self.recorder is not None and not self.finished:
                with part("record"):
                    self.recorder.take(batch, self._state)
            reports = self.learner.learn(
                batch,
                worker,
                lambda report: self._count(report, open_batch),
                minibatches=trainer.minibatches,
                epochs=trainer.epochs,
            )
            if self._is_averaged:  # whatever the updates of this rank: the others do so too
                self._average()
            if reports:
                self._end_batch(reports, lags, batch.chain_steps)
        return reports

    def _end_batch(
        self, reports: list[UpdateReport], lags: NDArray[np.int64], chain_steps: Mapping[str, int]
    ) -> None:
        """Count a learned batch."""
        applied = [report for report in reports if report.applied]
        with self.learner.turn():
            self.counters.batches += 1
            self.counters.ended_batches += any(report.ends for report in reports)
            self._chain_steps.add(chain_steps)
            if not applied:
                return
            self._gauges = {
                **mean_gauges(applied),
                "lag_mean": float(lags.mean()),
                "lag_max": float(lags.max()),
                "batch_steps": float(len(lags)),
                "compressed_share": compressed_share(chain_steps),
            }
            self._correction.look(self._gauges)

    @property
    def _is_averaged(self) -> bool:
        """Whether the ranks average behind the newest batch."""
        every = self._config.trainer.average_every
        return every is not None and self.rounds.batches % every == 0

    def _mark(self) -> tuple[int, int]:
        """What is the same in all ranks between two batches."""
        if self._config.trainer.average_every is None:
            return self.counters.updates, int(self.learner.state.digest())
        # between two averages each makes updates of its own
        return self.rounds.batches, int(self.learner.state.digest()) if self._is_averaged else 0

    def raise_version(self, version: int) -> None:
        """Publish the present weights as this version, which is newer."""
        with self.learner.turn(), part("publish"):
            self.counters.policy_version = version
            self.publish()

    def _average(self) -> None:
        """Take the mean over the ranks, where these make updates of their own."""
        if self._config.trainer.average_every is not None:
            with self.learner.turn(), part("exchange"):
                self.learner.state.average(self.rounds.group)

    @property
    def finished(self) -> bool:
        """Whether the run has made all its updates."""
        most = self._config.run.max_updates
        if self._config.trainer.average_every is not None and self.rounds.group.rank > 0:
            return False  # rank 0 tells it, of its own updates
        return most is not None and self.counters.updates >= most

    def _count(self, report: UpdateReport, open_batch: OpenBatch) -> None:
        """Count an update, and the fate of its new steps."""
        if report.applied:
            self._refused_in_a_row = 0
            self.counters.updates += 1
            self._look_at_bound()
            open_batch.learned(report.new_steps)
            return
        open_batch.dropped("nonfinite_gradient", report.new_steps)
        _LOGGER.error("event=update_refused gradient_norm=%s", report.metrics["gradient_norm"])
        self.counters.refused_updates += 1
        self._refused_in_a_row += 1
        refuse_if_diverged(self._refused_in_a_row)

    def take_made(self, made: Made, reports: Sequence[UpdateReport]) -> None:
        """Count batches whose updates others have made of this trainer's weights, and publish.

        Args:
            reports: of the newest batch.
        """
        account, counters = self.account, self.counters
        account.learned(made.learned)
        account.dropped("nonfinite_gradient", made.refused)
        account.dropped("shutdown", account.in_flight_steps)
        counters.updates += made.updates
        counters.refused_updates += made.refused_updates
        counters.batches += made.batches
        counters.ended_batches += made.ended_batches
        if applied := [report for report in reports if report.applied]:
            steps = float(sum(report.new_steps for report in applied))
            new = {"lag_mean": 0.0, "lag_max": 0.0, "batch_steps": steps, "compressed_share": 0.0}
            self._gauges = {**mean_gauges(applied), **new}
        if made.versions:
            self.raise_version(counters.policy_version + made.versions)

    def _look_at_bound(self) -> None:
        if self.finished:
            self.on_finished()

    def take_episodes(self) -> dict[str, Any]:
        """Fields of a heartbeat about episodes since the last call; none within a batch."""
        return self.source.take_episodes() if self._fields_at_begin is None else {}

    def with_episodes(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Fields of a heartbeat, with the episodes since the last call."""
        return {**fields, **self.take_episodes()}

    def heartbeat_fields(self) -> dict[str, Any]:
        """Counters, dropped steps and gauges of a heartbeat, at the same moment.

        While a batch is played they are the fields at its start: the monitor must not see a bound
        before the batch that reaches it is learned, and end the run.
        """
        if self._fields_at_begin is not None:
            return {name: dict(values) for name, values in self._fields_at_begin.items()}
        # without the lock: a heartbeat must not wait for an update. `updates` may be one ahead.
        counters, dropped = self.account.counters()
        counters |= vars(self.counters)
        counters |= {"generation": self.generation, **self._chain_steps.counters()}
        if (ranks := self.rounds.group.size) > 1:
            counters["ranks"] = ranks
        gauges = dict(self._gauges)
        if self.recorder is not None:
            gauges["recorded_batches"] = float(self.recorder.batches)
        fields: dict[str, Any] = {"counters": counters, "dropped": dropped, "gauges": gauges}
        for name, more in self.source.heartbeat_fields().items():
            fields[name] |= more
        return fields

    def _state(self) -> dict[str, Any]:
        architecture = self.learner.architecture
        return {
            "architecture": architecture.digest(),
            "architecture_spec": architecture.to_dict(),
            "environment": self._spec.of_environment(),
            "machine": self._machine,
            "policy": self.account.policy,
            "generation": self.generation,
            "counters": dict(vars(self.counters)),
            "settings": self.learner.wanted,
            **self._accounts(),
        }

    def _accounts(self) -> dict[str, Any]:
        """The account of the run, and of several ranks each one's."""
        mine, group = self.account.state(), self.rounds.group
        if group.size == 1:
            return {"account": mine}
        ledgers = [*self.rounds.ledgers]
        ledgers[group.rank] = mine
        if self.rounds.stale:  # at an end without the others
            others = [ledger for rank, ledger in enumerate(ledgers) if rank != group.rank]
            learned = int(self.learner.state.learned_steps) - self.account.learned_steps
            gone = StepAccount.reckoned(others, self.account.elsewhere, learned)
            empty = StepAccount(policy=self.account.policy).state()
            ledgers = [mine, gone, *[empty] * (group.size - 2)]
        return {"account": StepAccount.joined(ledgers), "ledgers": ledgers}


def _machine_of(device: torch.device) -> str:
    """The machine that learns, for who reads of the policy later."""
    gpu = f", {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    return machine() + gpu
