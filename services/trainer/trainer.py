"""The trainer: learns the batches of a source and publishes weights."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray

from aclearn.config import Config
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
from aclearn.learning.ranks import ALONE, Group
from aclearn.telemetry import part
from aclearn.types import EnvSpec, PolicyVersion
from services.trainer.averaging import Averaging
from services.trainer.flight_recorder import FlightRecorder
from services.trainer.gauges import Figures, TrainerCounters
from services.trainer.rounds import Rounds
from services.trainer.saved_state import SavedState
from services.trainer.snapshot import Snapshot


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
        figures: what it counts of its updates and batches.
        saved: its state, for checkpoints.
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
        self._averaging = Averaging(config.trainer.average_every, learner, group)
        self.rounds = Rounds(
            group,
            account,
            learner.device,
            mark=lambda: self._averaging.mark(self.rounds.batches, self.counters.updates),
            before_copies=self._averaging.average,
            follow=lambda settings: learner.set(**settings),
        )
        self._waiting: Batch | None = None  # until every rank has one
        self.published, self.generation = published, generation
        self.figures = Figures()
        self.saved = SavedState(
            learner,
            account,
            source,
            self.rounds,
            self.figures,
            config=config,
            spec=spec,
            generation=generation,
        )
        self.on_publish: Callable[[], None] = lambda: None
        self.on_finished: Callable[[], None] = lambda: account.end("max_updates")
        self.by_policy = {account.policy: self}
        self.accounts = Accounts({account.policy: account})
        self._config = config
        self._fields_at_begin: dict[str, Any] | None = None

    @property
    def counters(self) -> TrainerCounters:
        """Its counters, which a checkpoint has."""
        return self.figures.counters

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of an earlier trainer, as `SavedState.restore`."""
        self.saved.restore(snapshot)
        self._look_at_bound()

    def share(self) -> None:
        """Begin as rank 0 does, as `SavedState.share`."""
        self.saved.share()
        self._look_at_bound()

    def snapshot(self, *, whole: bool = True) -> Snapshot:
        """The present state, as `SavedState.snapshot`."""
        return self.saved.snapshot(whole=whole)

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

        With other ranks each learns its own when all have one, and keeps it until then. Where
        environments have played the run's last steps, it learns all that their memory owes.

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
                worked = batch is not None
                while batch is not None:
                    with self.rounds.together():
                        went_on = self.learn(batch, worker)
                    batch = self._last_draw(worker) if went_on else None
        finally:
            self._fields_at_begin = None
        return worked

    def _last_draw(self, worker: GradientWorker) -> Batch | None:
        """A batch that a memory owes for the last steps; None until the run has played them.

        Ranks make no such draws: each would need the others.
        """
        last = self.source.plays and self.source.draws and self.over and not self.finished
        if not last or self.rounds.group.size > 1 or worker.stopped:
            return None
        return self.source.next(0.0, worker)

    def _next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        batch, self._waiting = self._waiting, None
        if batch is None and not (self.source.plays and self.over):
            batch = self.source.next(timeout_s, worker)
        if self.rounds.group.size == 1:
            return batch
        if batch is not None and not int(batch.steps):  # others cannot wait for nothing
            self.source.learned(batch)
            batch = None
        with self.rounds.together():
            if self.rounds.meet(batch is not None):
                return batch
        self._waiting = batch
        return None

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

    def learn(self, batch: Batch, worker: GradientWorker | None = None) -> bool:
        """Learn from a batch of the source, then publish; whether an update was made.

        Args:
            worker: of the calling thread; None if there is only one thread.
        """
        reports = self.update(batch, worker)
        if any(report.applied for report in reports):
            with self.learner.turn():
                self.raise_version(self.counters.policy_version + 1)
        self.source.learned(batch, reports[-1].errors if reports else None)
        return bool(reports)

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
                    self.recorder.take(batch, self.saved.described, self.counters.updates)
            reports = self.learner.learn(
                batch,
                worker,
                lambda report: self._count(report, open_batch),
                minibatches=trainer.minibatches,
                epochs=trainer.epochs,
            )
            if self._averaging.is_due(self.rounds.batches):  # whatever the updates of this rank
                self._averaging.average()
            if reports:
                with self.learner.turn():
                    self.figures.add_batch(reports, lags, batch.chain_steps)
        return reports

    def raise_version(self, version: int) -> None:
        """Publish the present weights as this version, which is newer."""
        with self.learner.turn(), part("publish"):
            self.counters.policy_version = version
            self.publish()

    @property
    def finished(self) -> bool:
        """Whether the run has made all its updates."""
        most = self._config.run.max_updates
        if self._averaging.every is not None and self.rounds.group.rank > 0:
            return False  # rank 0 tells it, of its own updates
        return most is not None and self.counters.updates >= most

    def _count(self, report: UpdateReport, open_batch: OpenBatch) -> None:
        """Count an update, and the fate of its new steps."""
        if report.applied:
            self.figures.add_update(report)
            self._look_at_bound()
            open_batch.learned(report.new_steps)
        else:
            open_batch.dropped("nonfinite_gradient", report.new_steps)
            self.figures.add_update(report)

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
        counters, dropped, seen = self.account.counters()
        counters |= {**self.figures.counts(), "generation": self.generation}
        if (ranks := self.rounds.group.size) > 1:
            counters["ranks"] = ranks
        gauges = self.figures.gauges()
        if self.recorder is not None:
            gauges["recorded_batches"] = float(self.recorder.batches)
        fields: dict[str, Any] = {"counters": counters, "dropped": dropped, "gauges": gauges}
        fields["seen"] = {self.account.policy: seen}
        for name, more in self.source.heartbeat_fields().items():
            fields[name] |= more
        return fields
