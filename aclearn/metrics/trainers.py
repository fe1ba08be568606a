"""The heartbeats of a run's trainers as those of one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aclearn.metrics.names import CHAIN_STEPS

if TYPE_CHECKING:  # the wire imports sockets
    from aclearn.wire import Heartbeat

#: Counters of which each rank has its own; the others are those of rank 0.
_OF_EACH: Final = (
    "env_steps",
    "learned_steps",
    "in_flight_steps",
    "episodes",
    "predictions",
    "worker_failures",
)
_OF_EACH_BEGIN: Final = ("refused.", f"{CHAIN_STEPS}.")


class Trainers(NamedTuple):
    """The newest numbers of all ranks of one generation.

    Attributes:
        incarnation: one text for those of all ranks.
        counters: sums of what each rank counts for itself; of the rest those of rank 0.
        dropped: sums.
        seen: steps by actor in the accounts: sums.
        gauges: means over the ranks that report them; of a `<gauge>_max` the largest.
        note: the first that any rank has.
    """

    incarnation: str
    counters: Mapping[str, int]
    dropped: Mapping[str, int]
    seen: Mapping[str, int]
    gauges: Mapping[str, float]
    note: str


class TrainerRanks:
    """Keeps the newest heartbeat of each rank."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[str, Heartbeat]] = {}

    def observe(self, rank: int, incarnation: str, heartbeat: Heartbeat) -> str | None:
        """Take a heartbeat; returns the incarnation that this one replaces, if any."""
        before = self._ranks.get(rank)
        self._ranks[rank] = incarnation, heartbeat
        return before[0] if before is not None and before[0] != incarnation else None

    def joined(self) -> Trainers | None:
        """The numbers of all ranks; None until each has sent a heartbeat of this generation."""
        newest = max(_generation(heartbeat) for _, heartbeat in self._ranks.values())
        present = {n: each for n, each in self._ranks.items() if _generation(each[1]) == newest}
        size = max(heartbeat.counters.get("ranks", 1) for _, heartbeat in present.values())
        if any(rank not in present for rank in range(size)):
            return None
        incarnations, beats = zip(*(present[rank] for rank in range(size)), strict=True)
        return Trainers(
            "+".join(incarnations),
            _counters(beats),
            _sums(each.dropped for each in beats),
            _sums(each.seen() for each in beats),
            _gauges(beats),
            next((each.note for each in beats if each.note), ""),
        )


def joined_gauges(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Of several processes' gauges the mean, of a `<gauge>_max` the largest."""
    return {
        name: max(each) if name.endswith("_max") else math.fsum(each) / len(each)
        for name, each in values.items()
    }


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums = Counter[str]()
    for each in counts:
        sums.update(each)
    return dict(sums)


def _generation(heartbeat: Heartbeat) -> int:
    return heartbeat.counters.get("generation", 0)


def _counters(beats: Sequence[Heartbeat]) -> dict[str, int]:
    counters = dict(beats[0].counters)
    for beat in beats[1:]:
        for name, count in beat.counters.items():
            if name in _OF_EACH or name.startswith(_OF_EACH_BEGIN):
                counters[name] = counters.get(name, 0) + count
    return counters


def _gauges(beats: Sequence[Heartbeat]) -> dict[str, float]:
    collected: dict[str, list[float]] = {}
    for beat in beats:
        for name, value in beat.gauges.items():
            if math.isfinite(value):
                collected.setdefault(name, []).append(float(value))
    return joined_gauges(collected)
