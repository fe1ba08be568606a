"""Means over a run's newest episodes that do not depend on which of them end first."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from aclearn.metrics.names import EPISODES_FOR_TARGET
from aclearn.types import EpisodeCohort
from aclearn.types.bounds import LARGEST_FIGURE

if TYPE_CHECKING:  # the wire imports sockets
    from aclearn.wire import Heartbeat

#: Cohorts that wait for longer episodes of other actors; when there are more, neighbours are
#: joined. Among a thousand actors all of a minute wait for the longest episode.
_MOST_WAITING: Final = 4096
#: Gaps that are remembered, so that what began in them is left out.
_MOST_GAPS: Final = 64
#: Older entries of the heap that are kept beside as many as there are actors.
_STALE_KEPT: Final = 64
_BEGUN: Final = attrgetter("begun_s")
_STATE: Final = TypeAdapter(list[EpisodeCohort])


class EpisodeMeans:
    """Means over the newest 100 episodes or more, by when they began.

    An episode counts once every episode that began before it has ended, in any actor. Otherwise
    the first hundred would be the hundred shortest. Where an actor leaves in the middle of
    episodes, none counts that began after the oldest of them: the short ones have been reported.
    Pure: time is an argument.

    Attributes:
        episodes: in the means; fewer than 100 at the start of a run.

    Raises:
        ValueError: `state` is invalid.
    """

    def __init__(self, state: Sequence[Mapping[str, Any]] | None = None) -> None:
        self._counted = deque(_STATE.validate_python(state or []))
        for cohort in self._counted:
            sums = (cohort.return_sum, cohort.length_sum, *cohort.info_sums.values())
            if cohort.episodes < 1 or not all(abs(value) <= LARGEST_FIGURE for value in sums):
                raise ValueError(f"a sum of episodes is not a number up to {LARGEST_FIGURE:g}")
        self.episodes = sum(each.episodes for each in self._counted)
        self._waiting: list[EpisodeCohort] = []  # in the order of their begins
        self._offsets: dict[str, float] = {}  # of each process's clock
        self._settled: dict[str, float] = {}  # living actor → begin of its oldest running episode
        #: The same as a heap, among older entries that are left out once they are the least.
        self._oldest: list[tuple[float, str]] = []
        self._now = -math.inf
        #: From the begin of the oldest episode that a process has not reported to its end: the
        #: short ones that began then are reported, so that none of them counts.
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_MOST_GAPS)
        #: Episodes that began earlier do not count; None until the first heartbeat says when the
        #: object before this one, which had some of them, has ended.
        self._since: float | None = -math.inf if state is None else None

    def observe(self, incarnation: str, heartbeat: Heartbeat, now: float, *, settles: bool) -> None:
        """Add the cohorts of a heartbeat.

        Args:
            settles: whether cohorts of others wait for its running episodes.
        """
        if not heartbeat.clock_s:  # it plays none, or none yet
            return
        self._now = max(self._now, now)
        if self._since is None:
            self._since = now
        # fixed at the first heartbeat: cohorts of one process must stay in its own order
        offset = self._offsets.setdefault(incarnation, now - heartbeat.clock_s)
        if settles:
            self._settle(incarnation, offset + heartbeat.settled_s)
        for cohort in heartbeat.cohorts:
            moved = replace(cohort, begun_s=offset + cohort.begun_s)
            if moved.begun_s >= self._since and not self._in_gap(moved):
                insort(self._waiting, moved, key=_BEGUN)
        self._count()

    def forget(self, incarnation: str) -> None:
        """Wait no longer for the running episodes of a process that is gone."""
        self._offsets.pop(incarnation, None)
        if (settled := self._settled.pop(incarnation, self._now)) < self._now:
            self._leave_out(settled, self._now)

    @property
    def return_mean(self) -> float | None:
        """Mean true return; None before the first episode."""
        return self._mean(math.fsum(each.return_sum for each in self._counted))

    @property
    def length_mean(self) -> float | None:
        """Mean length in agent steps; None before the first episode."""
        return self._mean(sum(each.length_sum for each in self._counted))

    @property
    def info_means(self) -> dict[str, float]:
        """Figure of `env.info_metrics` → its mean over those of the episodes that have it."""
        if not self._counted:
            return {}
        joined = EpisodeCohort.joined(self._counted)
        return {
            name: joined.info_sums[name] / count
            for name, count in sorted(joined.info_counts.items())
            if count
        }

    def state(self) -> list[dict[str, Any]]:
        """The counted episodes as JSON-able values, for another object."""
        made: list[dict[str, Any]] = _STATE.dump_python(list(self._counted))
        return made

    def _settle(self, incarnation: str, begun_s: float) -> None:
        """Set the begin of an actor's oldest running episode."""
        self._settled[incarnation] = begun_s
        heappush(self._oldest, (begun_s, incarnation))
        if len(self._oldest) > 2 * len(self._settled) + _STALE_KEPT:
            self._oldest = [(begun_s, actor) for actor, begun_s in self._settled.items()]
            heapify(self._oldest)

    def _settled_until(self) -> float:
        """Begin of the oldest running episode of all living actors."""
        oldest = self._oldest
        while oldest and self._settled.get(oldest[0][1]) != oldest[0][0]:
            heappop(oldest)
        return oldest[0][0] if oldest else math.inf

    def _leave_out(self, begin: float, end: float) -> None:
        """Let no episode count that began in this interval, as one with those that touch it."""
        apart = [gap for gap in self._gaps if gap[1] < begin or end < gap[0]]
        touching = [gap for gap in self._gaps if gap not in apart]
        begin, end = min([begin, *(b for b, _ in touching)]), max([end, *(e for _, e in touching)])
        self._gaps = deque([*apart, (begin, end)], maxlen=_MOST_GAPS)
        first, after = (bisect_left(self._waiting, at, key=_BEGUN) for at in (begin, end))
        del self._waiting[first:after]

    def _in_gap(self, cohort: EpisodeCohort) -> bool:
        return any(begin <= cohort.begun_s < end for begin, end in self._gaps)

    def _mean(self, total: float) -> float | None:
        return total / self.episodes if self.episodes else None

    def _count(self) -> None:
        until, settled = self._settled_until(), 0
        while settled < len(self._waiting) and self._waiting[settled].begun_s < until:
            self._counted.append(self._waiting[settled])
            self.episodes += self._waiting[settled].episodes
            settled += 1
        del self._waiting[:settled]
        if (count := len(self._waiting)) > _MOST_WAITING:
            pairs = (self._waiting[at : at + 2] for at in range(0, count, 2))
            self._waiting = [EpisodeCohort.joined(pair) for pair in pairs]
        while self._counted and self.episodes - self._counted[0].episodes >= EPISODES_FOR_TARGET:
            self.episodes -= self._counted.popleft().episodes
