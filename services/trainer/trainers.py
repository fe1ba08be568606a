"""The trainers of several policies, which learn in rounds and publish one version together."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray
from typing_extensions import override

from aclearn.errors import CheckpointError
from aclearn.learning import (
    Accounts,
    Batch,
    BatchSource,
    GradientWorker,
    StopCheck,
)
from aclearn.metrics.trainers import joined_gauges
from aclearn.runs.checkpoint import tensors_of
from aclearn.types import PolicyVersion
from aclearn.wire import PolicyNumbers
from services.role.metrics import joined_numbers
from services.trainer.gauges import TrainerCounters
from services.trainer.saved_state import SNAPSHOT_WITHIN_S
from services.trainer.snapshot import Snapshot
from services.trainer.trainer import Trainer

#: Counters of which those of all policies are not the sum of each one's.
_COMMON = ("generation", "policy_version")
#: Gauges that have a meaning for all policies together.
_OF_ALL = ("lag_mean", "lag_max", "batch_steps", "compressed_share")


class Workers:
    """One thread's workers of the learning policies, and their batches of an unfinished round."""

    def __init__(self, by_policy: Mapping[str, GradientWorker]) -> None:
        self.by_policy = by_policy
        self.batches: dict[str, Iterator[Batch]] = {}

    def watch(self, check: StopCheck) -> None:
        """As of a worker: `check` stops the batch of each policy."""
        for worker in self.by_policy.values():
            worker.watch(check)

    def close(self) -> None:
        """End their threads."""
        for worker in self.by_policy.values():
            worker.close()


class NoBatches(BatchSource):
    """The source of a policy that does not learn."""

    @override
    def next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        return None


class Trainers:
    """The policies of a run as one trainer, with what its role needs of a `Trainer`.

    A round is what follows from one batch of new steps of each learning policy: this batch, or
    draws of a replay memory. After it one version is published with the weights
    of all policies, those of fixed opponents too, so that versions and lags are those of the run.
    The policies share one lock: a snapshot has all of one moment.

    Args:
        by_policy: a trainer for each policy; that of a fixed one gets no batches.
        learning: names of the others.

    Attributes:
        accounts: those of the learning policies.
        on_publish: called after each publication, while the lock is held.
    """

    def __init__(self, by_policy: Mapping[str, Trainer], learning: tuple[str, ...]) -> None:
        self.by_policy, self._learning = by_policy, {name: by_policy[name] for name in learning}
        self.accounts = Accounts({name: each.account for name, each in self._learning.items()})
        self.on_publish: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        for trainer in by_policy.values():
            trainer.learner.lock = self._lock
            trainer.on_finished = self._look_at_end
        first = next(iter(self._learning.values()))
        self.generation, self.rounds = first.generation, first.rounds
        self._first = first
        self._unfinished: set[Workers] = set()  # which have batches of a round
        self._fields_at_begin: dict[str, Any] | None = None

    @property
    def at(self) -> PolicyVersion:
        """The newest published version."""
        return self._first.published.at

    @property
    def plays(self) -> bool:
        """Whether batches come from environments of its own."""
        return self._first.plays

    @property
    def digest(self) -> str:
        """A digest of all architectures, by policy."""
        digests = [f"{name}:{each.digest}" for name, each in sorted(self.by_policy.items())]
        return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]

    @property
    def counters(self) -> TrainerCounters:
        """The common version, and of the updates those of the policy with the least."""
        least = min(self._learning.values(), key=lambda each: each.counters.updates)
        return least.counters

    @property
    def learned_steps(self) -> int:
        """Agent steps that have been learned, of all policies."""
        return sum(each.learned_steps for each in self._learning.values())

    @property
    def over(self) -> bool:
        """Whether a bound is reached, so that nothing more is learned."""
        return self.accounts.reached is not None

    def load(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Begin with these tensors of a checkpoint, named as in one of several policies."""
        for name, trainer in self.by_policy.items():
            if own := tensors_of(name, tensors):
                trainer.load(own)

    def snapshot(self, *, whole: bool = True) -> Snapshot:
        """The present state of all policies, as `Trainer.snapshot`."""
        if not self._lock.acquire(timeout=SNAPSHOT_WITHIN_S):
            raise CheckpointError(f"an update has not ended for {SNAPSHOT_WITHIN_S:g} s")
        try:
            parts = {name: each.snapshot(whole=whole) for name, each in self.by_policy.items()}
        finally:
            self._lock.release()
        return Snapshot.joined(parts, learning=tuple(self._learning), digest=self.digest)

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot; errors as of `Trainer.restore`."""
        for name, trainer in self.by_policy.items():
            trainer.restore(snapshot.of_policy(name))
        self.accounts.compare()

    def share(self) -> None:
        """Nothing: there are no other ranks."""

    def publish(self) -> None:
        """Publish the present weights of all policies under their common version."""
        with self._lock:
            for trainer in self.by_policy.values():
                trainer.publish()
            self.on_publish()

    def set(self, **settings: float) -> None:
        """`Trainer.set` for each policy that has these numbers.

        Raises:
            ValueError: none has.
        """
        refusals = list[ValueError]()
        for trainer in self._learning.values():
            try:
                trainer.set(**settings)
            except ValueError as error:
                refusals.append(error)
        if len(refusals) == len(self._learning):
            raise refusals[0]

    def make_worker(self) -> Workers:
        """The workers for one thread that steps it."""
        return Workers({name: each.make_worker() for name, each in self._learning.items()})

    def step(self, timeout_s: float, workers: Workers) -> bool:
        """Learn a round and publish; False if some policy has no batch yet.

        Errors as of `Trainer.step`; the other batches of the round are dropped then, since a worker
        that failed is not stepped again.
        """
        if self.plays:
            self._fields_at_begin = self.heartbeat_fields()
        try:
            with self._first.in_stream():
                return self._round(timeout_s, workers)
        except BaseException:
            self._drop(workers, "worker_failed")
            raise
        finally:
            self._fields_at_begin = None

    def _round(self, timeout_s: float, workers: Workers) -> bool:
        if (self.plays and self.over) or not self._next(timeout_s, workers):
            return False
        self.accounts.compare()  # of steps of its own, too
        changed = False
        while workers.batches:
            name = next(iter(workers.batches))
            trainer = self._learning[name]
            for batch in workers.batches.pop(name):
                reports = trainer.update(batch, workers.by_policy[name])
                trainer.source.learned(batch, reports[-1].errors if reports else None)
                changed |= any(report.applied for report in reports)
        self._unfinished.discard(workers)
        if changed:
            self._raise_version()
        return True

    def _next(self, timeout_s: float, workers: Workers) -> bool:
        """Whether there is a batch of each learning policy; those so far are kept."""
        for name, trainer in self._learning.items():
            if name not in workers.batches:
                batches = trainer.source.of_new_steps(timeout_s, workers.by_policy[name])
                if batches is None:
                    return False
                workers.batches[name] = batches
                self._unfinished.add(workers)
        return True

    def _raise_version(self) -> None:
        with self._lock:
            version = self.counters.policy_version + 1
            for trainer in self.by_policy.values():
                trainer.raise_version(version)
            self.on_publish()

    def close(self) -> None:
        """Give up the sources."""
        for trainer in self.by_policy.values():
            trainer.source.close()

    def drop_waiting(self) -> None:
        """Drop the batches of unfinished rounds; for the end, once no worker keeps one."""
        for workers in list(self._unfinished):
            self._drop(workers, self.accounts.reached or "shutdown")

    def _drop(self, workers: Workers, reason: str) -> None:
        """Drop the batches of an unfinished round; what a memory would draw stays in it."""
        self._unfinished.discard(workers)
        while workers.batches:
            name, batches = workers.batches.popitem()
            trainer = self._learning[name]
            for batch in () if trainer.source.draws else batches:
                trainer.account.dropped(reason, int(batch.new_steps))

    def with_episodes(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Fields of a heartbeat, with the episodes of each policy since the last call."""
        if self._fields_at_begin is not None:
            return fields
        clock_s, numbers = 0.0, {}
        for name, each in fields["policies"].items():
            episodes = self.by_policy[name].source.take_episodes()
            clock_s = episodes.pop("clock_s", clock_s)
            numbers[name] = replace(each, **episodes)
        return {**fields, "policies": numbers, "clock_s": clock_s}

    def heartbeat_fields(self) -> dict[str, Any]:
        """Counters, dropped steps and gauges of a heartbeat: of all policies, and of each.

        While a round is played they are the fields at its start, as of a `Trainer`.
        """
        if self._fields_at_begin is not None:
            return {name: dict(values) for name, values in self._fields_at_begin.items()}
        fields = {name: each.heartbeat_fields() for name, each in self.by_policy.items()}
        seen = {name: own for each in fields.values() for name, own in each.pop("seen").items()}
        numbers = {name: PolicyNumbers(**each) for name, each in fields.items()}
        joined = joined_numbers(numbers) | {"seen": seen}
        learning = [numbers[name] for name in self._learning]
        for name in _COMMON:
            joined["counters"][name] = learning[0].counters[name]
        # one that has made all its updates has no more batches
        joined["counters"]["updates"] = min(each.counters["updates"] for each in learning)
        joined["counters"]["batches"] = max(each.counters["batches"] for each in learning)
        gauges = {
            name: [each.gauges[name] for each in learning if name in each.gauges]
            for name in _OF_ALL
        }
        joined["gauges"] = joined_gauges({name: each for name, each in gauges.items() if each})
        return joined

    def _look_at_end(self) -> None:
        """End the run's learning once each learning policy has made all its updates."""
        if all(each.finished for each in self._learning.values()):
            for account in self.accounts.by_policy.values():
                account.end("max_updates")
