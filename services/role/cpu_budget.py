"""A compressor's limit and share of CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable

from aclearn.telemetry import SlidingRate

#: The longest pause before a compression, in multiples of the pause that the compression alone
#: needs. Replies to many actors may use the whole share; artifacts must still be made.
_MOST_STRETCH = 4
#: Seconds over which the metrics' share is measured.
_WINDOW_S = 10.0


class CpuBudget:
    """Limits how often compressions start: by an interval and by a use of the CPU.

    All CPU time of the process from one start to the next counts: unpacking weights, keeping
    observations, sending artifacts, answering requests.

    Args:
        every_s: least time between two starts.
        cpu_share: largest use in cores, on average from one start to the next.
    """

    def __init__(self, *, every_s: float, cpu_share: float) -> None:
        self._every_s, self._cpu_share = every_s, cpu_share
        self._started = float("-inf")
        self._cpu_at_start_s = self._own_cpu_s = 0.0

    def due(self, now: float, cpu_s: float) -> bool:
        """Whether a compression may start.

        Args:
            now: monotonic seconds, as in all these methods.
        """
        used_s = min(cpu_s - self._cpu_at_start_s, _MOST_STRETCH * self._own_cpu_s)
        return now >= self._started + max(self._every_s, used_s / self._cpu_share)

    def begin(self, now: float, cpu_s: float) -> None:
        """Start a compression; CPU time from `cpu_s` on belongs to it."""
        self._started, self._cpu_at_start_s = now, cpu_s

    def done(self, cpu_s: float) -> None:
        """End the compression."""
        self._own_cpu_s = cpu_s - self._cpu_at_start_s


class CpuShare:
    """The share of one core that this process used lately."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._rate = SlidingRate(_WINDOW_S)
        self._rate.add(0.0, clock())
        self._cpu_s = cpu_clock()

    def take(self) -> float:
        """The share over about ten seconds; above 1 where several threads compute."""
        now, cpu_s = self._clock(), self._cpu_clock()
        self._rate.add(cpu_s - self._cpu_s, now)
        self._cpu_s = cpu_s
        return self._rate.per_s(now)
