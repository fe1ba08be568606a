"""Counters and gauges of the trainer."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aclearn.learning import UpdateReport
from aclearn.metrics import CHAIN_STEPS
from aclearn.types import is_compressed
from services.trainer.tally import Made

_LOGGER = logging.getLogger(__name__)

#: Updates in a row with a non-finite gradient after which the trainer fails.
_MOST_REFUSED_UPDATES = 20
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


class Figures:
    """Counts the updates and batches of one trainer, and has the gauges of the newest batch.

    Attributes:
        counters: saved with a checkpoint.
    """

    def __init__(self) -> None:
        self.counters = TrainerCounters()
        self._refused_in_a_row = 0
        self._gauges: dict[str, float] = {}
        self._chain_steps, self._correction = ChainSteps(), CorrectionLog()

    def add_update(self, report: UpdateReport) -> None:
        """Count an update.

        Raises:
            FloatingPointError: too many in a row were refused.
        """
        if report.applied:
            self._refused_in_a_row = 0
            self.counters.updates += 1
            return
        _LOGGER.error("event=update_refused gradient_norm=%s", report.metrics["gradient_norm"])
        self.counters.refused_updates += 1
        self._refused_in_a_row += 1
        refuse_if_diverged(self._refused_in_a_row)

    def add_batch(
        self,
        reports: Sequence[UpdateReport],
        lags: NDArray[np.int64],
        chain_steps: Mapping[str, int],
    ) -> None:
        """Count a learned batch.

        Args:
            reports: of its updates.
            lags: `[steps]`, of its valid steps.
            chain_steps: chain of the policy that acted → steps.
        """
        applied = [report for report in reports if report.applied]
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

    def add_made(self, made: Made, reports: Sequence[UpdateReport]) -> None:
        """Count batches whose updates others have made.

        Args:
            reports: of the newest batch.
        """
        counters = self.counters
        counters.updates += made.updates
        counters.refused_updates += made.refused_updates
        counters.batches += made.batches
        counters.ended_batches += made.ended_batches
        if applied := [report for report in reports if report.applied]:
            steps = float(sum(report.new_steps for report in applied))
            new = {"lag_mean": 0.0, "lag_max": 0.0, "batch_steps": steps, "compressed_share": 0.0}
            self._gauges = {**mean_gauges(applied), **new}

    def counts(self) -> dict[str, int]:
        """The counters for a heartbeat."""
        return {**vars(self.counters), **self._chain_steps.counters()}

    def gauges(self) -> dict[str, float]:
        """The gauges for a heartbeat."""
        return dict(self._gauges)


def refuse_if_diverged(refused_in_a_row: int) -> None:
    """Raise `FloatingPointError` after too many updates in a row that were refused."""
    if refused_in_a_row >= _MOST_REFUSED_UPDATES:
        raise FloatingPointError(
            f"{_MOST_REFUSED_UPDATES} updates in a row had a gradient that is not finite: "
            "lower optimiser.learning_rate or clip rewards (env.clip_rewards)"
        )


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
