"""The episodes of the last seconds, summed by the time of their report."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

#: Most sums that are kept.
_MOST_SUMS: Final = 8192


@dataclass(frozen=True)
class EpisodeSums:
    """The episodes that were reported at one time.

    Attributes:
        count, total: number of episodes and sum of their returns, by kind.
    """

    time_s: float
    env_steps: float
    count: Mapping[str, int]
    total: Mapping[str, float]


class EpisodeWindow:
    """Keeps the last `window_s` seconds, more if these have few episodes of a kind.

    Args:
        least: the window grows until it has this many episodes of each kind that occurs. A kind
            that has as many has ended where neither the last `window_s` nor the newer half of the
            window have one; the window then begins after its last one.
    """

    def __init__(self, window_s: float, least: int) -> None:
        self._window_s, self._least = window_s, least
        self.sums: deque[EpisodeSums] = deque()
        self.counts: dict[str, int] = {}
        self._newest_s: dict[str, float] = {}

    def add(self, time_s: float, env_steps: float, episodes: Iterable[tuple[str, float]]) -> None:
        """Add the episodes reported now, each with its kind and its return."""
        count: dict[str, int] = {}
        total: dict[str, float] = {}
        for kind, return_ in episodes:
            count[kind] = count.get(kind, 0) + 1
            total[kind] = total.get(kind, 0.0) + return_
        if count:
            self.sums.append(EpisodeSums(time_s, env_steps, count, total))
            self._count(count, 1)
            self._newest_s |= dict.fromkeys(count, time_s)
        while self.sums and self._is_old(time_s):
            self._drop_oldest()
        for kind in [kind for kind in self.counts if self._has_ended(kind, time_s)]:
            while self.counts[kind]:
                self._drop_oldest()

    def mean(self, kind: str) -> float | None:
        """Mean return of a kind; None if there are too few."""
        count = self.counts.get(kind, 0)
        if count < self._least:
            return None
        return sum(each.total.get(kind, 0.0) for each in self.sums) / count

    def _is_old(self, now: float) -> bool:
        """Whether the window has enough episodes without its oldest sums."""
        oldest = self.sums[0]
        spare = all(self.counts[k] - n >= self._least for k, n in oldest.count.items())
        return len(self.sums) > _MOST_SUMS or (now - oldest.time_s > self._window_s and spare)

    def _has_ended(self, kind: str, now: float) -> bool:
        if self.counts[kind] < self._least:
            return False
        half_s = (now - self.sums[0].time_s) / 2
        return now - self._newest_s[kind] > max(self._window_s, half_s)

    def _drop_oldest(self) -> None:
        self._count(self.sums.popleft().count, -1)

    def _count(self, count: Mapping[str, int], sign: int) -> None:
        for kind, number in count.items():
            self.counts[kind] = self.counts.get(kind, 0) + sign * number
