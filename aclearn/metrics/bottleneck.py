"""Which role holds the run up, in words, from where each role's time goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aclearn.metrics.advice import advice, may_be_free, tuner_hint
from aclearn.metrics.formatting import percent
from aclearn.metrics.readings import (
    FREE_CORES,
    TRAINING_QUEUE,
    TunerState,
    queue_fills,
    sockets_busy,
    tuner_state,
)
from aclearn.telemetry import OTHER_WORKERS
from aclearn.telemetry.labels import WORKING

UNROLLS = "unrolls"
ACTIONS = "actions"
EMULATOR = "emulator"
REQUESTS = "requests"
WEIGHTS = "weights"

# Below this share a wait is the small change of any program that talks to others.
_NOTICEABLE = 0.15
# From this share on a wait is the reason why a role is slow.
_LARGE = 0.25
_FULL = 0.8
_UNKNOWN, _STARTING = "unknown", "starting"


@dataclass(frozen=True)
class Bottleneck:
    """What limits the learned steps per second.

    Attributes:
        role: the role to speed up; None when no single one is to blame, or nothing is known yet.
        sentence: what was seen and what would help.
        count: the tuner's name of what there may be too many or too few of: predictors, trainers or
            actors; None where another number of them would not help.
        kind: the same for the same finding and remedy with other numbers.
    """

    role: str | None
    sentence: str
    count: str | None = None
    kind: str = field(default="", compare=False)

    @property
    def early(self) -> bool:
        """Whether nothing can be said yet: the run is starting."""
        return self.kind in (_UNKNOWN, _STARTING)


def bottleneck_of(line: Mapping[str, Any]) -> Bottleneck:
    """What a metrics line says of the bottleneck; see `find_bottleneck`."""
    return find_bottleneck(
        line.get("wait_share") or {},
        queue_fills(line),
        learned_steps=line.get("learned_steps"),
        busy=sockets_busy(line),
        tuner=tuner_state(line),
        free_cores=line.get(FREE_CORES),
    )


def find_bottleneck(
    wait_share: Mapping[str, Mapping[str, float]],
    queue_fill: Mapping[str, float] | None = None,
    *,
    learned_steps: int | None = None,
    busy: Mapping[str, float] | None = None,
    tuner: TunerState | None = None,
    free_cores: float | None = None,
) -> Bottleneck:
    """The role that holds the run up: follows who waits for whom, from the trainer on.

    Nobody is blamed for the start of a run, when everybody waits for everybody: that is as long as
    nothing is learned, and as long as actors wait for their first weights.

    Args:
        wait_share: role → "working" or what it waited for → share of its time; each role's shares
            add up to 1 (a metrics line's `wait_share`).
        queue_fill: queue → fill between 0 and 1, as `queue_fills` gives it.
        learned_steps: agent steps learned so far; None where that is not known.
        busy: role → how busy its thread for messages is, 0 to 1, as `sockets_busy` gives it.
        tuner: of the run; None where it is off.
        free_cores: of the machine that all roles are on; None where that is not known. Where none
            is free, more processes are no advice.
    """
    found = _find(wait_share, queue_fill or {}, busy or {}, learned_steps, free_cores)
    if found.count is None:
        return found
    return replace(found, sentence=f"{found.sentence}; {tuner_hint(found.count, tuner)}")


def _find(
    wait_share: Mapping[str, Mapping[str, float]],
    queue_fill: Mapping[str, float],
    busy: Mapping[str, float],
    learned_steps: int | None,
    free: float | None,
) -> Bottleneck:
    trainer = wait_share.get("trainer")
    if not trainer:
        return Bottleneck(None, "not known yet: the trainer has not reported", kind=_UNKNOWN)
    if learned_steps == 0:
        seen = f"starting: nothing is learned yet; {_waits_in_words(wait_share)}"
        return Bottleneck(None, seen, kind=_STARTING)
    weights = wait_share.get("actor", {}).get(WEIGHTS, 0.0)
    if weights >= _NOTICEABLE:
        return Bottleneck(
            None,
            f"starting: actors wait {percent(weights)} for their first weights; if that lasts, see "
            "the log of who makes them: the trainer, or with compressor.chain the compressor",
            kind=_STARTING,
        )
    if trainer.get(UNROLLS, 0.0) >= _NOTICEABLE:
        return _before_the_trainer(wait_share, busy, free)
    return _at_the_trainer(trainer, wait_share.get("actor", {}), queue_fill, free)


def _at_the_trainer(
    trainer: Mapping[str, float],
    actor: Mapping[str, float],
    queue_fill: Mapping[str, float],
    free: float | None,
) -> Bottleneck:
    label, share = _largest_wait(trainer)
    if share >= _LARGE and label == OTHER_WORKERS:
        return Bottleneck(
            None,
            f"the trainer's workers wait {percent(share)} of the time for each other, since one "
            "update at a time changes the weights; fewer trainer.workers would help",
            count="trainers",
            kind="trainer's workers",
        )
    if share >= _LARGE:
        seen = f"trainer: it waits {percent(share)} of the time for {label}"
        return Bottleneck("trainer", seen, kind=f"trainer's {label}")
    pressure = actor.get(TRAINING_QUEUE, 0.0)
    fill = queue_fill.get(TRAINING_QUEUE, 0.0)
    works = f"it works {percent(trainer.get(WORKING, 0.0))} of the time"
    if pressure >= _NOTICEABLE or fill >= _FULL:
        reasons = []
        if pressure >= _NOTICEABLE:
            reasons.append(f"actors wait {percent(pressure)} for the training queue")
        if fill >= _FULL:
            reasons.append(f"the training queue is {percent(fill)} full")
        remedy = advice(
            free,
            more="trainer.workers",
            less=("fewer actors.processes", "a smaller policy.architecture", "a GPU"),
        )
        return Bottleneck(
            "trainer",
            f"trainer: {works} while {' and '.join(reasons)}; {remedy}",
            count="trainers" if may_be_free(free) else "actors",
            kind=f"trainer, {_cores(free)}",
        )
    if not actor:
        seen = f"trainer: {works}; no actor has reported"
        return Bottleneck("trainer", seen, kind="no actor")
    return Bottleneck(
        None,
        f"balanced: the trainer works {percent(trainer.get(WORKING, 0.0))} of the time and actors "
        f"wait {percent(pressure)} for it; only cheaper parts or a faster machine would help",
        kind="balanced",
    )


def _before_the_trainer(
    wait_share: Mapping[str, Mapping[str, float]], busy: Mapping[str, float], free: float | None
) -> Bottleneck:
    """The trainer waits for unrolls: the actors, or what they wait for, are too slow."""
    starved = f"the trainer waits {percent(wait_share['trainer'][UNROLLS])} for unrolls"
    actor = wait_share.get("actor")
    if not actor:
        seen = f"actor: none has reported while {starved}; see the actors' log"
        return Bottleneck("actor", seen, kind="no actor")
    label, share = _largest_wait(actor)
    if share < _LARGE or label == EMULATOR:
        return _at_the_actor(actor, starved, free)
    if label == ACTIONS:
        return _at_the_predictor(wait_share.get("predictor", {}), busy, share, starved, free)
    if label == TRAINING_QUEUE and busy.get("trainer", 0.0) >= _FULL:
        return Bottleneck(
            "trainer",
            f"trainer: its thread for messages works {percent(busy['trainer'])} of the time while "
            f"actors wait {percent(share)} for the training queue and {starved}; fewer and larger "
            "messages, by actors.unroll_length or actors.envs_per_group, would help",
            kind="trainer's messages",
        )
    if label == TRAINING_QUEUE:
        return Bottleneck(
            None,
            f"the way between actors and trainer: actors wait {percent(share)} for the training "
            f"queue while {starved}; a larger actors.max_in_flight_unrolls or a smaller "
            "trainer.unrolls_per_batch would help",
            kind="way to the trainer",
        )
    seen = f"actor: it waits {percent(share)} of the time for {label} while {starved}"
    return Bottleneck("actor", seen, kind=f"actor's {label}")


def _at_the_actor(actor: Mapping[str, float], starved: str, free: float | None) -> Bottleneck:
    emulator, working = actor.get(EMULATOR, 0.0), actor.get(WORKING, 0.0)
    if emulator > working:
        kind = "actor's emulator"
        seen = f"waits {percent(emulator)} of the time for the emulator"
        more, less = "actors.processes or actors.emulator_threads", ("a faster environment",)
    else:
        kind = "actor"
        seen = f"works {percent(working)} of the time"
        more, less = "actors.processes", ("a smaller policy.architecture",)
    return Bottleneck(
        "actor",
        f"actor: it {seen} while {starved}; {advice(free, more=more, less=less)}",
        count="actors" if may_be_free(free) else None,
        kind=f"{kind}, {_cores(free)}",
    )


def _at_the_predictor(
    predictor: Mapping[str, float],
    busy: Mapping[str, float],
    actions: float,
    starved: str,
    free: float | None,
) -> Bottleneck:
    seen = f"actors wait {percent(actions)} for actions and {starved}"
    if not predictor:
        none = f"predictor: none has reported while {seen}; see its log"
        return Bottleneck("predictor", none, kind="no predictor")
    working, requests = predictor.get(WORKING, 0.0), predictor.get(REQUESTS, 0.0)
    if working >= requests:
        remedy = advice(
            free,
            more="predictor.workers or predictor.processes",
            less=("a smaller policy.architecture", "actors.inference=local"),
        )
        return Bottleneck(
            "predictor",
            f"predictor: it works {percent(working)} of the time while {seen}; {remedy}",
            count="predictors" if may_be_free(free) else None,
            kind=f"predictor, {_cores(free)}",
        )
    if busy.get("predictor", 0.0) >= _FULL:
        remedy = advice(
            free,
            more="predictor.processes",
            less=("fewer and larger messages by actors.envs_per_group",),
        )
        return Bottleneck(
            "predictor",
            f"predictor: its thread for messages works {percent(busy['predictor'])} of the time "
            f"while {seen}; {remedy}",
            kind=f"predictor's messages, {_cores(free)}",
        )
    return Bottleneck(
        None,
        f"the way between actors and predictor: {seen}, but the predictor waits "
        f"{percent(requests)} for requests; two actors.groups (one steps while the other waits) or "
        "more actors.envs_per_group would help",
        kind="way to the predictor",
    )


def _cores(free: float | None) -> str:
    """The part of a kind that is another one where `advice` gives another remedy."""
    return "more" if may_be_free(free) else "less"


def _waits_in_words(wait_share: Mapping[str, Mapping[str, float]]) -> str:
    """Each role's largest wait: "actor waits 62 % for weights, trainer waits …"."""
    # the monitor waits for messages whatever the others do
    others = {role: shares for role, shares in wait_share.items() if role != "monitor"}
    largest = {role: _largest_wait(shares) for role, shares in sorted(others.items())}
    words = [
        f"{role} waits {percent(share)} for {label}"
        for role, (label, share) in largest.items()
        if share >= _NOTICEABLE
    ]
    return ", ".join(words) or "everybody works"


def _largest_wait(shares: Mapping[str, float]) -> tuple[str, float]:
    """The label, "working" apart, with the largest share; ("nothing", 0) when there is none."""
    waits = [(label, share) for label, share in shares.items() if label != WORKING]
    return max(waits, key=lambda item: item[1], default=("nothing", 0.0))
