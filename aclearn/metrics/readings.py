"""What a metrics line says of queues, threads, free cores and the tuner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aclearn.metrics.names import TUNER_FROZEN, TUNER_TEMPERATURE

TRAINING_QUEUE = "training queue"
PREDICTION_QUEUE = "prediction queue"
#: Gauge of the monitor: processor cores of its machine that nobody uses. Only where every role is
#: on that machine.
FREE_CORES = "monitor_free_cores"


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


def tuner_state(line: Mapping[str, Any]) -> TunerState | None:
    """What the tuner does; None where it is off."""
    if TUNER_TEMPERATURE not in line:
        return None
    counts = frozenset(c for c in ("predictors", "trainers", "actors") if f"tuner_{c}" in line)
    return TunerState(counts, frozen=bool(line.get(TUNER_FROZEN)))
