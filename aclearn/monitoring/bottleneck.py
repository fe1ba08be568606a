"""Which role holds the run up, in words, from where each role's time goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aclearn.monitoring.waits import WORKING
from aclearn.monitoring.wording import percent

UNROLLS = "unrolls"
TRAINING_QUEUE = "training queue"
PREDICTION_QUEUE = "prediction queue"
ACTIONS = "actions"
EMULATOR = "emulator"
REQUESTS = "requests"
WEIGHTS = "weights"
OTHER_WORKERS = "the other workers"
#: Gauges of a run whose tuner is on; for each count that it may change one more, `tuner_<count>`.
TUNER_TEMPERATURE = "tuner_temperature"
TUNER_FROZEN = "tuner_frozen"

# Below this share a wait is the small change of any program that talks to others.
_NOTICEABLE = 0.15
# From this share on a wait is the reason why a role is slow.
_LARGE = 0.25
_FULL = 0.8


@dataclass(frozen=True)
class Bottleneck:
    """What limits the learned steps per second.

    Attributes:
        role: the role to speed up; None when no single one is to blame, or nothing is known yet.
        sentence: what was seen and what would help.
        count: the tuner's name of what there may be too many or too few of: predictors, trainers or
            actors; None where another number of them would not help.
    """

    role: str | None
    sentence: str
    count: str | None = None


@dataclass(frozen=True)
class TunerState:
    """What a run's tuner does: which counts it may change, and whether it has stopped trying."""

    counts: frozenset[str]
    frozen: bool


def queue_fills(line: Mapping[str, Any]) -> dict[str, float]:
    """How full the queues are, 0 to 1, by queue, from the gauges in a metrics line.

    The trainer's gauge `queue_fill` (or `training_queue_fill`) is the training queue, a
    predictor's, which arrives as `predictor_queue_fill`, the prediction queue. Unknown ones are
    left out.
    """
    names = {
        "queue_fill": TRAINING_QUEUE,
        "training_queue_fill": TRAINING_QUEUE,
        "trainer_queue_fill": TRAINING_QUEUE,
        "predictor_queue_fill": PREDICTION_QUEUE,
        "prediction_queue_fill": PREDICTION_QUEUE,
    }
    return {
        queue: float(line[name])
        for name, queue in names.items()
        if isinstance(line.get(name), int | float)
    }


def sockets_busy(line: Mapping[str, Any]) -> dict[str, float]:
    """Role → share of its time that its thread for messages works, from a metrics line's gauges."""
    names = {"trainer": "sockets_busy", "predictor": "predictor_sockets_busy"}
    return {
        role: float(line[name])
        for role, name in names.items()
        if isinstance(line.get(name), int | float)
    }


def bottleneck_of(line: Mapping[str, Any]) -> Bottleneck:
    """What a metrics line says of the bottleneck; see `find_bottleneck`."""
    return find_bottleneck(
        line.get("wait_share") or {},
        queue_fills(line),
        learned_steps=line.get("learned_steps"),
        busy=sockets_busy(line),
        tuner=_tuner_state(line),
    )


def find_bottleneck(
    wait_share: Mapping[str, Mapping[str, float]],
    queue_fill: Mapping[str, float] | None = None,
    *,
    learned_steps: int | None = None,
    busy: Mapping[str, float] | None = None,
    tuner: TunerState | None = None,
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
    """
    found = _find(wait_share, queue_fill or {}, busy or {}, learned_steps)
    if found.count is None:
        return found
    return replace(found, sentence=f"{found.sentence}; {_hint(found.count, tuner)}")


def _hint(count: str, tuner: TunerState | None) -> str:
    """What a tuner does about a count, or would do."""
    if tuner is None:
        # predictors and trainers are what tuner.counts has when nobody says anything else
        also = " with actors in tuner.counts" if count == "actors" else ""
        return f"tuner.enabled=true{also} tries such counts by itself"
    if count not in tuner.counts:
        return f"the tuner would try such counts with {count} in tuner.counts"
    if tuner.frozen:
        return "the tuner has tried such counts and keeps what paid best"
    return "the tuner is trying such counts"


def _tuner_state(line: Mapping[str, Any]) -> TunerState | None:
    if TUNER_TEMPERATURE not in line:
        return None
    counts = frozenset(c for c in ("predictors", "trainers", "actors") if f"tuner_{c}" in line)
    return TunerState(counts, frozen=bool(line.get(TUNER_FROZEN)))


def _find(
    wait_share: Mapping[str, Mapping[str, float]],
    queue_fill: Mapping[str, float],
    busy: Mapping[str, float],
    learned_steps: int | None,
) -> Bottleneck:
    trainer = wait_share.get("trainer")
    if not trainer:
        return Bottleneck(None, "not known yet: the trainer has not reported")
    if learned_steps == 0:
        return Bottleneck(None, f"starting: nothing is learned yet; {_waits_in_words(wait_share)}")
    weights = wait_share.get("actor", {}).get(WEIGHTS, 0.0)
    if weights >= _NOTICEABLE:
        return Bottleneck(
            None,
            f"starting: actors wait {percent(weights)} for their first weights; if that lasts, see "
            "the log of who makes them: the trainer, or with compressor.chain the compressor",
        )
    if trainer.get(UNROLLS, 0.0) >= _NOTICEABLE:
        return _before_the_trainer(wait_share, busy)
    return _at_the_trainer(trainer, wait_share.get("actor", {}), queue_fill)


def _at_the_trainer(
    trainer: Mapping[str, float], actor: Mapping[str, float], queue_fill: Mapping[str, float]
) -> Bottleneck:
    label, share = _largest_wait(trainer)
    if share >= _LARGE and label == OTHER_WORKERS:
        return Bottleneck(
            None,
            f"the trainer's workers wait {percent(share)} of the time for each other, since one "
            "update at a time changes the weights; fewer trainer.workers would help",
            count="trainers",
        )
    if share >= _LARGE:
        return Bottleneck("trainer", f"trainer: it waits {percent(share)} of the time for {label}")
    pressure = actor.get(TRAINING_QUEUE, 0.0)
    fill = queue_fill.get(TRAINING_QUEUE, 0.0)
    works = f"it works {percent(trainer.get(WORKING, 0.0))} of the time"
    if pressure >= _NOTICEABLE or fill >= _FULL:
        seen = []
        if pressure >= _NOTICEABLE:
            seen.append(f"actors wait {percent(pressure)} for the training queue")
        if fill >= _FULL:
            seen.append(f"the training queue is {percent(fill)} full")
        return Bottleneck(
            "trainer",
            f"trainer: {works} while {' and '.join(seen)}; "
            "more trainer.workers where cores are free, fewer actors.processes, a smaller "
            "policy.architecture, or a GPU would help",
            count="trainers",
        )
    if not actor:
        return Bottleneck("trainer", f"trainer: {works}; no actor has reported")
    return Bottleneck(
        None,
        f"balanced: the trainer works {percent(trainer.get(WORKING, 0.0))} of the time and actors "
        f"wait {percent(pressure)} for it; only cheaper parts or a faster machine would help",
    )


def _before_the_trainer(
    wait_share: Mapping[str, Mapping[str, float]], busy: Mapping[str, float]
) -> Bottleneck:
    """The trainer waits for unrolls: the actors, or what they wait for, are too slow."""
    starved = f"the trainer waits {percent(wait_share['trainer'][UNROLLS])} for unrolls"
    actor = wait_share.get("actor")
    if not actor:
        return Bottleneck("actor", f"actor: none has reported while {starved}; see the actors' log")
    label, share = _largest_wait(actor)
    if share < _LARGE or label == EMULATOR:
        return _at_the_actor(actor, starved)
    if label == ACTIONS:
        return _at_the_predictor(wait_share.get("predictor", {}), busy, share, starved)
    if label == TRAINING_QUEUE and busy.get("trainer", 0.0) >= _FULL:
        return Bottleneck(
            "trainer",
            f"trainer: its thread for messages works {percent(busy['trainer'])} of the time while "
            f"actors wait {percent(share)} for the training queue and {starved}; fewer and larger "
            "messages, by actors.unroll_length or actors.envs_per_group, would help",
        )
    if label == TRAINING_QUEUE:
        return Bottleneck(
            None,
            f"the way between actors and trainer: actors wait {percent(share)} for the training "
            f"queue while {starved}; a larger actors.unacknowledged_unrolls or a smaller "
            "trainer.unrolls_per_batch would help",
        )
    return Bottleneck(
        "actor", f"actor: it waits {percent(share)} of the time for {label} while {starved}"
    )


def _at_the_actor(actor: Mapping[str, float], starved: str) -> Bottleneck:
    emulator, working = actor.get(EMULATOR, 0.0), actor.get(WORKING, 0.0)
    if emulator > working:
        return Bottleneck(
            "actor",
            f"actor: it waits {percent(emulator)} of the time for the emulator while {starved}; "
            "more actors.processes or actors.emulator_threads would help if there are free cores",
            count="actors",
        )
    return Bottleneck(
        "actor",
        f"actor: it works {percent(working)} of the time while {starved}; more actors.processes "
        "if there are free cores, or a smaller policy.architecture, would help",
        count="actors",
    )


def _at_the_predictor(
    predictor: Mapping[str, float], busy: Mapping[str, float], actions: float, starved: str
) -> Bottleneck:
    seen = f"actors wait {percent(actions)} for actions and {starved}"
    if not predictor:
        return Bottleneck("predictor", f"predictor: none has reported while {seen}; see its log")
    working, requests = predictor.get(WORKING, 0.0), predictor.get(REQUESTS, 0.0)
    if working >= requests:
        return Bottleneck(
            "predictor",
            f"predictor: it works {percent(working)} of the time while {seen}; more "
            "predictor.workers or predictor.processes if there are free cores, a smaller "
            "policy.architecture, or actors.inference=local would help",
            count="predictors",
        )
    if busy.get("predictor", 0.0) >= _FULL:
        return Bottleneck(
            "predictor",
            f"predictor: its thread for messages works {percent(busy['predictor'])} of the time "
            f"while {seen}; more predictor.processes if there are free cores, or fewer and larger "
            "messages by actors.envs_per_group, would help",
        )
    return Bottleneck(
        None,
        f"the way between actors and predictor: {seen}, but the predictor waits "
        f"{percent(requests)} for requests; two actors.groups (one steps while the other waits) or "
        "more actors.envs_per_group would help",
    )


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
