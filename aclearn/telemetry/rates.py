"""Rates per second over a sliding window, from counters that restart with their process."""

from __future__ import annotations

from collections import deque


class SlidingRate:
    """Events per second over about the last `window_s` seconds; never negative.

    Memory is bounded: samples closer than 1/100 of the window are merged.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._total = 0.0
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, amount: float, now: float) -> None:
        """Count `amount` events until `now`; the first call starts the clock and should have 0."""
        self._total += max(0.0, amount)
        if len(self._samples) > 1 and now - self._samples[-1][0] < self._window_s / 100:
            self._samples[-1] = (self._samples[-1][0], self._total)
        else:
            self._samples.append((now, self._total))
        self._forget(now)

    def per_s(self, now: float) -> float:
        """Events per second since the window began, or since the first sample if later."""
        self._forget(now)
        if not self._samples:
            return 0.0
        began, total = self._samples[0]
        return (self._total - total) / (now - began) if now > began else 0.0

    def _forget(self, now: float) -> None:
        # The newest sample at or before the window's start stays: it has the total of that time.
        while len(self._samples) > 1 and self._samples[1][0] <= now - self._window_s:
            self._samples.popleft()


class CounterRate:
    """A `SlidingRate` of the sum of one counter over processes, each cumulative from its own start.

    The first value of a process is its starting point: it may come from a checkpoint, or from
    before the observer's start.
    """

    def __init__(self, window_s: float) -> None:
        self._rate = SlidingRate(window_s)
        self._last: dict[str, int] = {}

    def observe(self, incarnation: str, value: int, now: float) -> None:
        """Set the counter's value in one process at `now`."""
        self._rate.add(value - self._last.get(incarnation, value), now)
        self._last[incarnation] = value

    def forget(self, incarnation: str) -> None:
        """Drop a process; its counts stay."""
        self._last.pop(incarnation, None)

    def per_s(self, now: float) -> float:
        """Sum over the processes, per second."""
        return self._rate.per_s(now)
