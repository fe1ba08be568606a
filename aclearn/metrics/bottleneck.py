"""The role that limits the run, as text, from each role's shares of waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aclearn.metrics.advice import advice, may_be_free, tuner_hint
from aclearn.metrics.formatting import amount, percent
from aclearn.metrics.names import (
    ACTIONS,
    EMULATOR,
    FREE_CORES,
    LEARNED_HERE,
    NEWER_WEIGHTS,
    PART_SECONDS,
    QUEUE_FILLS,
    REPLAY_RATIO,
    REQUESTS,
    RESIDENT_ENVS,
    SOCKETS_BUSY,
    TRAINING_QUEUE,
    UNROLLS,
    WAIT_SHARE,
    WEIGHTS,
)
from aclearn.telemetry import OTHER_WORKERS, WORKING

# Smaller shares of waiting are normal.
_NOTICEABLE = 0.15
# Larger shares explain why a role is slow.
_LARGE = 0.25
_FULL = 0.8
_UNKNOWN, _STARTING = "unknown", "starting"
#: Parts of the work of a trainer with resident environments, the rollout first.
_RESIDENT_PARTS = (
    *("rollout", "update", "forward", "backward", "optimiser", "publish"),
    *("device", "exchange"),  # of several ranks
)
#: Seconds of the run without the same finding before another one is shown.
_KEPT_S = 15.0


@dataclass(frozen=True)
class Bottleneck:
    """The limit of the learned steps per second.

    Attributes:
        role: the role to speed up; None if no single one is, or nothing is known yet.
        count: tuner's name of the count to change: predictors, trainers or actors; None if no other
            number of them would help.
        kind: equal for the same finding and advice with other numbers.
    """

    role: str | None
    sentence: str
    count: str | None = None
    kind: str = field(default="", compare=False)


def queue_fills(line: Mapping[str, Any]) -> dict[str, float]:
    """Fill of each queue in a metrics line, 0 to 1; unknown ones are left out."""
    return _numbers(line, QUEUE_FILLS)


def find_bottleneck(line: Mapping[str, Any]) -> Bottleneck:
    """The role that limits the run by a metrics line, found by following the waits.

    The start of a run, when every role waits, has no bottleneck: it lasts until something is
    learned and actors have weights. The advice is no more processes if no core is free.
    """
    found = _Line(line).find()
    if found.count is None:
        return found
    return replace(found, sentence=f"{found.sentence}; {tuner_hint(found.count, line)}")


class SteadyBottleneck:
    """The bottleneck to show: it changes only when the previous one was not found for a while.

    Otherwise the advice would flip with each line if two roles limit the run in turns, or a core is
    free at times. Pure; its clock is the lines' `time_s`. The sentence's numbers are those of its
    last finding.
    """

    def __init__(self) -> None:
        self._shown: Bottleneck | None = None
        self._found_at_s = 0.0

    def observe(self, line: Mapping[str, Any]) -> Bottleneck:
        """The bottleneck to show as of this metrics line."""
        found, now_s = find_bottleneck(line), float(line.get("time_s") or 0.0)
        shown = self._shown
        early = shown is None or shown.kind in (_UNKNOWN, _STARTING)
        expired = now_s - self._found_at_s >= _KEPT_S
        if shown is None or early or found.kind == shown.kind or expired:
            self._shown, self._found_at_s = found, now_s
            return found
        return shown


class _Line:
    """Waits, queues, threads and cores in a metrics line."""

    def __init__(self, line: Mapping[str, Any]) -> None:
        self.waits: Mapping[str, Mapping[str, float]] = line.get(WAIT_SHARE) or {}
        self.trainer, self.actor = self.waits.get("trainer", {}), self.waits.get("actor", {})
        self.queue_fill = queue_fills(line).get(TRAINING_QUEUE, 0.0)
        self.busy = _numbers(line, SOCKETS_BUSY)
        self.learned_steps: int | None = line.get(LEARNED_HERE, line.get("learned_steps"))
        self.resident_envs = int(line.get(RESIDENT_ENVS) or 0)
        self.parts: Mapping[str, float] = (line.get(PART_SECONDS) or {}).get("trainer", {})
        self.replay_ratio: float | None = line.get(REPLAY_RATIO)
        #: What makes the trainer learn each step less often.
        self.fewer_updates = "fewer trainer.epochs or trainer.minibatches"
        if self.replay_ratio is not None:
            self.fewer_updates = "a smaller replay.ratio"
        self.free: float | None = line.get(FREE_CORES)

    def find(self) -> Bottleneck:
        if self.resident_envs and not self.learned_steps:
            return Bottleneck(
                None,
                "starting: the trainer loads; the first time it also compiles its environments, "
                "for up to a minute",
                kind=_STARTING,
            )
        if not self.trainer:
            return Bottleneck(None, "not known yet: the trainer has not reported", kind=_UNKNOWN)
        if self.learned_steps == 0:
            seen = f"starting: nothing is learned yet; {_waits_in_words(self.waits)}"
            return Bottleneck(None, seen, kind=_STARTING)
        if self.resident_envs:
            return self._with_own_environments()
        weights = self.actor.get(WEIGHTS, 0.0)
        if weights >= _NOTICEABLE:
            return Bottleneck(
                None,
                f"starting: actors wait {percent(weights)} for their first weights; if this lasts, "
                "see the log of the trainer, which publishes them, or with compressor.chain of the "
                "compressor",
                kind=_STARTING,
            )
        if self.actor.get(NEWER_WEIGHTS, 0.0) >= _NOTICEABLE:
            return self._in_turns()
        if self.trainer.get(UNROLLS, 0.0) >= _NOTICEABLE:
            return self._before_the_trainer()
        return self._at_the_trainer()

    def _with_own_environments(self) -> Bottleneck:
        """A trainer that plays itself: the larger part of its work."""
        total = max(sum(self.parts.get(name, 0.0) for name in _RESIDENT_PARTS), 1e-9)
        rollout = self.parts.get(_RESIDENT_PARTS[0], 0.0) / total
        what = "rollouts" if rollout >= 0.5 else "updates"
        remedy = (
            "more resident.threads or a faster environment"
            if what == "rollouts"
            else f"{self.fewer_updates}, a smaller policy.architecture"
        )
        return Bottleneck(
            "trainer",
            f"trainer: it plays {amount(self.resident_envs)} environments itself; {what} take "
            f"{percent(max(rollout, 1.0 - rollout))} of its time; {remedy} or a faster "
            "device would help",
            kind=f"resident {what}",
        )

    def _at_the_trainer(self) -> Bottleneck:
        label, share = _largest_wait(self.trainer)
        if share >= _LARGE and label == OTHER_WORKERS:
            return Bottleneck(
                None,
                f"the trainer's workers wait {percent(share)} of the time for each other, since "
                "one update at a time changes the weights; fewer trainer.workers would help",
                count="trainers",
                kind="trainer's workers",
            )
        if share >= _LARGE:
            seen = f"trainer: it waits {percent(share)} of the time for {label}"
            return Bottleneck("trainer", seen, kind=f"trainer's {label}")
        pressure, working = self.actor.get(TRAINING_QUEUE, 0.0), self.trainer.get(WORKING, 0.0)
        works = f"works {percent(working)} of the time"
        if pressure >= _NOTICEABLE or self.queue_fill >= _FULL:
            reasons = []
            if pressure >= _NOTICEABLE:
                reasons.append(f"actors wait {percent(pressure)} for the training queue")
            if self.queue_fill >= _FULL:
                reasons.append(f"the training queue is {percent(self.queue_fill)} full")
            seen = f"trainer: it {works} while {' and '.join(reasons)}"
            if self.replay_ratio is not None:
                return Bottleneck(
                    "trainer",
                    f"{seen}, since replay.ratio draws {self.replay_ratio:.3g} steps for each new "
                    "one before actors go on; "
                    f"{self.fewer_updates}, a smaller policy.architecture or a faster device would "
                    "help",
                    kind="replay",
                )
            remedy = self._advice(
                "trainer.workers",
                "fewer actors.processes",
                "a smaller policy.architecture",
                "a faster device",
            )
            return Bottleneck(
                "trainer",
                f"{seen}; {remedy}",
                count="trainers" if may_be_free(self.free) else "actors",
                kind=self._kind("trainer"),
            )
        if not self.actor:
            seen = f"trainer: it {works}; no actor has reported"
            return Bottleneck("trainer", seen, kind="no actor")
        return Bottleneck(
            None,
            f"balanced: the trainer {works} and actors wait {percent(pressure)} for it; only "
            "cheaper parts or a faster machine would help",
            kind="balanced",
        )

    def _in_turns(self) -> Bottleneck:
        """Actors wait for the update of each batch: acting and learning never overlap."""
        newer, unrolls = self.actor[NEWER_WEIGHTS], self.trainer.get(UNROLLS, 0.0)
        turns = f"actors wait {percent(newer)} for newer weights (actors.wait_for_weights)"
        if unrolls > newer:
            return self._at_the_actor(f"{turns} and the trainer {percent(unrolls)} for unrolls")
        return Bottleneck(
            "trainer",
            f"trainer: {turns}; {self.fewer_updates} would help, or "
            "actors.wait_for_weights: false, which acts while it learns",
            kind="turns",
        )

    def _before_the_trainer(self) -> Bottleneck:
        """The trainer waits for unrolls: the actors, or the roles they wait for, are too slow."""
        starved = f"the trainer waits {percent(self.trainer[UNROLLS])} for unrolls"
        if not self.actor:
            seen = f"actor: none has reported while {starved}; see the actors' log"
            return Bottleneck("actor", seen, kind="no actor")
        label, share = _largest_wait(self.actor)
        if share < _LARGE or label == EMULATOR:
            return self._at_the_actor(starved)
        waits = f"actors wait {percent(share)} for"
        if label == ACTIONS:
            return self._at_the_predictor(f"{waits} actions and {starved}")
        if label == TRAINING_QUEUE and self.busy.get("trainer", 0.0) >= _FULL:
            return Bottleneck(
                "trainer",
                f"trainer: its thread for messages works {percent(self.busy['trainer'])} of the "
                f"time while {waits} the training queue and {starved}; fewer and larger messages, "
                "by actors.unroll_length or actors.envs_per_group, would help",
                kind="trainer's messages",
            )
        if label == TRAINING_QUEUE:
            return Bottleneck(
                None,
                f"messages between actors and trainer: {waits} the training queue while {starved}; "
                "a larger actors.max_in_flight_unrolls or a smaller trainer.unrolls_per_batch "
                "would help",
                kind="way to the trainer",
            )
        seen = f"actor: it waits {percent(share)} of the time for {label} while {starved}"
        return Bottleneck("actor", seen, kind=f"actor's {label}")

    def _at_the_actor(self, starved: str) -> Bottleneck:
        emulator, working = self.actor.get(EMULATOR, 0.0), self.actor.get(WORKING, 0.0)
        if emulator > working:
            kind, seen = (
                "actor's emulator",
                f"waits {percent(emulator)} of the time for the emulator",
            )
            remedy = self._advice(
                "actors.processes or actors.emulator_threads", "a faster environment"
            )
        else:
            kind, seen = "actor", f"works {percent(working)} of the time"
            remedy = self._advice("actors.processes", "a smaller policy.architecture")
        return Bottleneck(
            "actor",
            f"actor: it {seen} while {starved}; {remedy}",
            count="actors" if may_be_free(self.free) else None,
            kind=self._kind(kind),
        )

    def _at_the_predictor(self, seen: str) -> Bottleneck:
        predictor = self.waits.get("predictor", {})
        if not predictor:
            none = f"predictor: none has reported while {seen}; see its log"
            return Bottleneck("predictor", none, kind="no predictor")
        working, requests = predictor.get(WORKING, 0.0), predictor.get(REQUESTS, 0.0)
        if working >= requests:
            remedy = self._advice(
                "predictor.workers or predictor.processes",
                "a smaller policy.architecture",
                "actors.inference=local",
            )
            return Bottleneck(
                "predictor",
                f"predictor: it works {percent(working)} of the time while {seen}; {remedy}",
                count="predictors" if may_be_free(self.free) else None,
                kind=self._kind("predictor"),
            )
        if self.busy.get("predictor", 0.0) >= _FULL:
            remedy = self._advice(
                "predictor.processes", "fewer and larger messages by actors.envs_per_group"
            )
            return Bottleneck(
                "predictor",
                f"predictor: its thread for messages works {percent(self.busy['predictor'])} of "
                f"the time while {seen}; {remedy}",
                kind=self._kind("predictor's messages"),
            )
        return Bottleneck(
            None,
            f"messages between actors and predictor: {seen}, but the predictor waits "
            f"{percent(requests)} for requests; two actors.groups (one steps while the other "
            "waits) or more actors.envs_per_group would help",
            kind="way to the predictor",
        )

    def _advice(self, more: str, *less: str) -> str:
        return advice(self.free, more=more, less=less)

    def _kind(self, kind: str) -> str:
        """The kind, distinguished by the remedy that `advice` gives."""
        return f"{kind}, {'more' if may_be_free(self.free) else 'less'}"


def _numbers(line: Mapping[str, Any], gauges: Mapping[str, str]) -> dict[str, float]:
    return {
        name: float(line[gauge])
        for name, gauge in gauges.items()
        if isinstance(line.get(gauge), int | float)
    }


def _waits_in_words(wait_share: Mapping[str, Mapping[str, float]]) -> str:
    """Each role's largest wait: "actor waits 62 % for weights, trainer waits …"."""
    # the monitor always waits for messages
    others = {role: shares for role, shares in wait_share.items() if role != "monitor"}
    largest = {role: _largest_wait(shares) for role, shares in sorted(others.items())}
    words = [
        f"{role} waits {percent(share)} for {label}"
        for role, (label, share) in largest.items()
        if share >= _NOTICEABLE
    ]
    return ", ".join(words) or "all roles work"


def _largest_wait(shares: Mapping[str, float]) -> tuple[str, float]:
    """The largest share and its label, without "working"; ("nothing", 0) if there is none."""
    waits = [(label, share) for label, share in shares.items() if label != WORKING]
    return max(waits, key=lambda item: item[1], default=("nothing", 0.0))
