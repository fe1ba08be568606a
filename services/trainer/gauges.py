"""Counters and gauges of the trainer."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aclearn.learning import UpdateReport
from aclearn.metrics import CHAIN_STEPS
from aclearn.types import is_compressed

_LOGGER = logging.getLogger(__name__)

_MOST_CHAINS = 16
#: Strengths of the two parts of a ratio that `correctors: auto` decides on, and their reasons.
_AUTO = ("auto_gap_strength", "auto_drift_strength")
_MEASURED = (
    *_AUTO,
    *("gap_kl", "drift_kl", "behaviour_kl", "behaviour_kl_estimate", "effective_sample_share"),
    *("lag_mean", "auto_masked_share"),
)
_BATCHES_BETWEEN_LINES = 100


@dataclass
class TrainerCounters:
    """A trainer's counters besides agent steps; saved with a checkpoint.

    Attributes:
        policy_version: publications since the start of the run, one for each learned batch.
        refused_updates: updates with a non-finite gradient.
        ended_batches: batches of which the loss left out epochs.
    """

    policy_version: int = 0
    updates: int = 0
    batches: int = 0
    refused_updates: int = 0
    ended_batches: int = 0


def mean_gauges(reports: Sequence[UpdateReport]) -> dict[str, float]:
    """The gauges of several updates, each the mean over those that report it."""
    collected: dict[str, list[float]] = {}
    for report in reports:
        for name, value in report.gauges().items():
            collected.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in collected.items()}


class CorrectionLog:
    """Logs what `correctors: auto` decides: at first, and when it has changed, seldom."""

    def __init__(self) -> None:
        self._logged: tuple[str, ...] | None = None
        self._batches = 0  # since then

    def look(self, gauges: Mapping[str, float]) -> None:
        """Log the decision for a batch with these gauges, unless it is the one logged last."""
        self._batches += 1
        if _AUTO[0] not in gauges:
            return
        words = tuple(_word(gauges[name]) for name in _AUTO)
        early = self._logged is not None and self._batches < _BATCHES_BETWEEN_LINES
        if words == self._logged or early:
            return
        self._logged, self._batches = words, 0
        measured = " ".join(f"{name}={gauges[name]:.4g}" for name in _MEASURED if name in gauges)
        _LOGGER.info("event=correction gap=%s drift=%s %s", *words, measured)


def _word(strength: float) -> str:
    return "off" if strength < 0.05 else "full" if strength > 0.95 else "partly"


class ChainSteps:
    """Counts the steps of learned batches by the chain of the policy that chose their actions."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter()

    def add(self, steps: Mapping[str, int]) -> None:
        """Count a batch's steps; chains beyond the 16th, of faulty actors only, are one."""
        for chain, count in steps.items():
            known = chain in self._steps or len(self._steps) < _MOST_CHAINS
            self._steps[chain if known else "other"] += count

    def counters(self) -> dict[str, int]:
        """For a heartbeat; empty as long as the trainer's weights themselves act."""
        steps = dict(self._steps)
        if steps.keys() <= {"none"}:
            return {}
        return {f"{CHAIN_STEPS}.{chain}": count for chain, count in steps.items()}


def compressed_share(steps: Mapping[str, int]) -> float:
    """Share of the steps, given by chain, whose actions came from a compressed policy."""
    compressed = sum(count for chain, count in steps.items() if is_compressed(chain))
    return compressed / max(1, sum(steps.values()))
