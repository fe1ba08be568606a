"""Counters and gauges of the trainer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aclearn.learning import UpdateReport
from aclearn.metrics import CHAIN_STEPS
from aclearn.types import is_compressed

_MOST_CHAINS = 16


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
