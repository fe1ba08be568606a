"""An actor's episodes by when they began, for means that do not depend on their lengths."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aclearn.types import EpisodeCohort, bounded_cohorts

#: Episodes that close a cohort: the mean of 100 is over whole cohorts, so they must be small.
_CLOSED_AT: Final = 10
#: Cohorts in memory; while one episode goes on and on, the newest takes all that begin.
_MOST_KEPT: Final = 1024


@dataclass
class _Cohort:
    begun_s: float
    begun: int = 0
    running: int = 0
    episodes: int = 0
    return_sum: float = 0.0
    length_sum: int = 0
    info_sums: dict[str, float] = field(default_factory=dict)
    info_counts: dict[str, int] = field(default_factory=dict)


class EpisodeCohorts:
    """Groups the episodes of one process by when they began.

    A cohort is reported once it and all before it have ended, so that none is reported early for
    being short.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: deque[_Cohort] = deque()
        self._first = 0  # number of the oldest one kept
        self._open = False  # whether more episodes may begin in the newest

    def begin(self, count: int) -> int:
        """Count episodes that begin now; returns the number of their cohort."""
        if not self._kept or (not self._open and len(self._kept) < _MOST_KEPT):
            self._kept.append(_Cohort(self._clock()))
        newest = self._kept[-1]
        newest.begun += count
        newest.running += count
        self._open = newest.begun < _CLOSED_AT
        return self._first + len(self._kept) - 1

    def end(self, number: int, return_: float, length: int, info: Mapping[str, float]) -> None:
        """Add an episode of cohort `number` that has ended."""
        cohort = self._kept[number - self._first]
        cohort.running -= 1
        cohort.episodes += 1
        cohort.return_sum += return_
        cohort.length_sum += length
        for name, value in info.items():
            cohort.info_sums[name] = cohort.info_sums.get(name, 0.0) + value
            cohort.info_counts[name] = cohort.info_counts.get(name, 0) + 1

    def drop(self, number: int) -> None:
        """Forget a running episode of cohort `number`."""
        self._kept[number - self._first].running -= 1

    def take(self) -> tuple[list[EpisodeCohort], float, float]:
        """The cohorts to report now; when the oldest that waits began; the clock."""
        self._open = False
        whole: list[EpisodeCohort] = []
        while self._kept and not self._kept[0].running:
            done = self._kept.popleft()
            self._first += 1
            if done.episodes:
                whole.append(
                    EpisodeCohort(
                        done.begun_s,
                        done.episodes,
                        done.return_sum,
                        done.length_sum,
                        done.info_sums,
                        done.info_counts,
                    )
                )
        now = self._clock()
        settled_s = self._kept[0].begun_s if self._kept else now
        return bounded_cohorts(whole), settled_s, now
