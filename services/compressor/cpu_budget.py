"""How much of a core a compressor may use, and does."""

from __future__ import annotations

import time
from collections.abc import Callable

from aclearn.telemetry import SlidingRate

#: Most times as long as by itself that a compression is put off for what the process does beside:
#: answers to many actors may take all of the share, and there must be newer artifacts all the same.
_MOST_STRETCH = 4
#: Seconds that the share in the metrics is of.
_WINDOW_S = 10.0


class CpuBudget:
    """When the next compression may start: no sooner than every so often, within a share of a core.

    All that the process uses from one start to the next counts: weights are unpacked, observations
    kept, artifacts sent, requests answered.

    Args:
        every_s: least time between two starts.
        cpu_share: most of one core's time, on average from one start to the next.
    """

    def __init__(self, *, every_s: float, cpu_share: float) -> None:
        self._every_s, self._cpu_share = every_s, cpu_share
        self._started = float("-inf")
        self._cpu_at_start_s = self._own_cpu_s = 0.0

    def due(self, now: float, cpu_s: float) -> bool:
        """Whether a compression may start.

        Args:
            now: seconds, monotonic; so for all of these methods.
            cpu_s: seconds of a core that the process has used since it began.
        """
        used_s = min(cpu_s - self._cpu_at_start_s, _MOST_STRETCH * self._own_cpu_s)
        return now >= self._started + max(self._every_s, used_s / self._cpu_share)

    def begin(self, now: float, cpu_s: float) -> None:
        """A compression starts; what has been used since `cpu_s` is of its time."""
        self._started, self._cpu_at_start_s = now, cpu_s

    def done(self, cpu_s: float) -> None:
        """The compression has ended."""
        self._own_cpu_s = cpu_s - self._cpu_at_start_s


class CpuShare:
    """What share of one core this process has used lately.

    Args:
        clock: seconds.
        cpu_clock: seconds of a core that the process has used.
    """

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
        """The share of about the last ten seconds; more than 1 where several threads compute."""
        now, cpu_s = self._clock(), self._cpu_clock()
        self._rate.add(cpu_s - self._cpu_s, now)
        self._cpu_s = cpu_s
        return self._rate.per_s(now)
