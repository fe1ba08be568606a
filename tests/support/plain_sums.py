"""The figures of a run's actors, recomputed from all their numbers at each look."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from aclearn.types import EpisodeCohort

#: Dead actors that are remembered singly.
_GONE_KEPT = 4096


class PlainTotals:
    """Agent steps by a trainer's account and the actors' own counts."""

    def __init__(self) -> None:
        self.trainer: str | None = None
        self.counters: Mapping[str, int] = {}
        self.dropped: Mapping[str, int] = {}
        self.seen: dict[str, int] = {}
        self.live: dict[str, int] = {}
        self.gone: dict[str, int] = {}
        self.settled = 0

    def _unseen(self, actor: str, steps: int) -> int:
        return max(0, steps - self.seen.get(actor, 0))

    def trainer_says(
        self,
        incarnation: str,
        counters: Mapping[str, int],
        dropped: Mapping[str, int],
        seen: Mapping[str, int],
    ) -> None:
        now = dict(seen)
        if incarnation == self.trainer:
            for actor in [a for a in self.gone if a in self.seen and a not in seen]:
                self.settled += self._unseen(actor, self.gone.pop(actor))
            now |= {a: self.seen[a] for a in self.live if a in self.seen and a not in seen}
        self.trainer, self.counters, self.dropped, self.seen = incarnation, counters, dropped, now
        for known in (self.live, self.gone):
            for actor in known:
                known[actor] = max(known[actor], now.get(actor, 0))

    def actor_says(self, actor: str, steps: int) -> None:
        self.live[actor] = max(self.gone.pop(actor, 0), self.live.get(actor, 0), steps)

    def actor_is_gone(self, actor: str) -> None:
        self.gone[actor] = self.live.pop(actor)
        if len(self.gone) > _GONE_KEPT:
            oldest = next(iter(self.gone))
            self.settled += self._unseen(oldest, self.gone.pop(oldest))

    def successor(self) -> None:
        """The monitor is another process now: living actors have not reported to it yet."""
        self.gone, self.live = self.gone | self.live, {}

    def figures(self) -> dict[str, Any]:
        """As in a metrics line."""
        way = sum(self._unseen(*each) for each in self.live.items())
        lost = self.settled + sum(self._unseen(*each) for each in self.gone.items())
        dropped = dict(self.dropped)
        if lost:
            dropped["actor_lost"] = dropped.get("actor_lost", 0) + lost
        return {
            "env_steps": self.counters.get("env_steps", 0) + way + lost,
            "in_flight_steps": self.counters.get("in_flight_steps", 0) + way,
            "dropped_steps": dropped,
        }


class PlainEpisodes:
    """Means over the newest 100 episodes or more of which all older ones have ended."""

    def __init__(self) -> None:
        self.settled: dict[str, float] = {}
        self.offsets: dict[str, float] = {}
        self.gaps: list[tuple[float, float]] = []
        self.waiting: list[EpisodeCohort] = []
        self.counted: list[EpisodeCohort] = []
        self.now = -math.inf

    def actor_says(
        self, actor: str, cohorts: Sequence[EpisodeCohort], settled_s: float, clock_s: float,
        now: float,
    ) -> None:  # fmt: skip
        self.now = max(self.now, now)
        offset = self.offsets.setdefault(actor, now - clock_s)
        self.settled[actor] = offset + settled_s
        for each in cohorts:
            moved = EpisodeCohort(
                offset + each.begun_s, each.episodes, each.return_sum, each.length_sum
            )
            if not any(begin <= moved.begun_s < end for begin, end in self.gaps):
                self.waiting.append(moved)
        self.waiting.sort(key=lambda each: each.begun_s)
        until = min(self.settled.values())
        self.counted += [each for each in self.waiting if each.begun_s < until]
        self.waiting = [each for each in self.waiting if each.begun_s >= until]

    def actor_is_gone(self, actor: str) -> None:
        self.offsets.pop(actor)
        begin = self.settled.pop(actor)
        if begin < self.now:
            self.gaps.append((begin, self.now))
            self.waiting = [e for e in self.waiting if not begin <= e.begun_s < self.now]

    def figures(self) -> dict[str, Any]:
        """As in a metrics line."""
        newest: list[EpisodeCohort] = []
        for each in reversed(self.counted):
            if sum(e.episodes for e in newest) >= 100:
                break
            newest.append(each)
        count = sum(each.episodes for each in newest)
        mean = math.fsum(each.return_sum for each in newest) / count if count else None
        length = sum(each.length_sum for each in newest) / count if count else None
        return {
            "return_mean_100": mean, "episode_length_mean": length, "episodes_in_mean": count
        }  # fmt: skip
