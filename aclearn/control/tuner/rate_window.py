"""One measurement of the tuner: wait for the counts, let them settle, then count over a window."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """A rate per second and the seconds over which it was measured."""

    rate: float
    window_s: float


@dataclass(frozen=True)
class Discarded:
    """A measurement that starts again, and the reason."""

    reason: str


class RateWindow:
    """Measures the rate of a cumulative counter under one setting. Pure: time is an argument.

    The rate is Δcounter/Δt between two samples of this window alone, so that the setting before
    does not count. A counter that grows by whole batches stands still in between, so both samples
    are ones in which it had just risen: with five batches in a window one batch would be an error
    of a fifth. The window starts with the first such sample `settle_s` after the roles applied the
    setting; it starts again whenever its two ends become incomparable. A setting counts as applied
    only once the counter has risen, at the start and after each break: a role reports its workers
    long before they work.

    Args:
        settle_s: pause between the application of a setting and the window, in seconds.
        longest_gap_s: between two samples; a longer one is a clock that jumped or a sleep.

    Attributes:
        roles_broke: whether a role broke the measurement in the last sample: it died, or has other
            counts.
    """

    def __init__(self, *, settle_s: float, longest_gap_s: float) -> None:
        self._settle_s, self._longest_gap_s = settle_s, longest_gap_s
        self._last: tuple[float, int, str] | None = None
        self.roles_broke = False
        self._rises = False
        self._batch_s = 0.0
        self.begin()

    def begin(self, *, settled: bool = False) -> None:
        """Start a measurement; with `settled` its setting has run already."""
        self._pause_s = 0.0 if settled else self._settle_s
        self._asked_at: float | None = None
        self._taken_at: float | None = None
        #: Time and counter at the window's ends.
        self._from: tuple[float, int] | None = None
        self._to: tuple[float, int] | None = None
        self._batches = 0

    def waited_s(self, now: float) -> float:
        """Seconds since the setting was requested; 0 once it runs."""
        if self._asked_at is None or self._taken_at is not None:
            return 0.0
        return now - self._asked_at

    def observe(
        self, now: float, counter: int, *, runs: bool, incarnation: str = "", died: bool = False
    ) -> Reading | Discarded | None:
        """Take a sample.

        Args:
            now: time of the sample, in seconds.
            counter: the cumulative counter at that time.
            runs: whether the roles run the measured setting.
            incarnation: of the process that counts; another one counts from 0 after a death.
            died: whether another role died since the last sample and must break the window.

        Returns:
            The reading so far; Discarded when the window started again; None before the first
                reading.
        """
        last, self._last = self._last, (now, counter, incarnation)
        last = last or self._last
        broken = self._broken_by_roles(last, counter, runs, incarnation, died)
        self.roles_broke = broken is not None
        broken = broken or self._broken_by_time(now - last[0])
        rose = counter > last[1]
        self._rises = rose or (self._rises and broken is None)
        if broken is not None:
            measuring = self._from is not None
            self.begin()
            self._asked_at = now
            if measuring:
                return Discarded(broken)
        if self._asked_at is None:
            self._asked_at = now
        if not (runs and self._rises):
            return None
        if self._taken_at is None:
            self._taken_at = now
        if now - self._taken_at < self._pause_s:
            return None
        if self._from is None or self._to is None:
            if self._from is None or rose:
                self._from = (now, counter)
                self._to = self._from if rose else None
        elif rose:
            self._to = (now, counter)
            self._batches += 1
            self._batch_s = (now - self._from[0]) / self._batches
        return self._read(now)

    def _read(self, now: float) -> Reading | None:
        assert self._from is not None  # a settled window has a beginning
        if self._to is None or not self._batches:
            # the first batch may be on its way; one that never comes is a rate of zero
            silent_s = now - self._from[0]
            patience_s = max(self._longest_gap_s, 2 * self._batch_s)
            return Reading(0.0, silent_s) if silent_s > patience_s else None
        # in the time of one batch the next one is not late yet
        late_s = max(0.0, now - self._to[0] - self._batch_s)
        window_s = self._to[0] + late_s - self._from[0]
        if window_s <= 0.0:
            return None  # two samples of one moment
        return Reading((self._to[1] - self._from[1]) / window_s, window_s)

    def _broken_by_roles(
        self, last: tuple[float, int, str], counter: int, runs: bool, incarnation: str, died: bool
    ) -> str | None:
        if incarnation != last[2] or counter < last[1]:
            return "the trainer was started again"
        if died:
            return "a role died and was started again"
        if self._taken_at is not None and not runs:
            return "the counts changed while they were measured"
        return None

    def _broken_by_time(self, gap_s: float) -> str | None:
        if not math.isfinite(gap_s) or gap_s < 0.0:
            return f"the clock went back by {-gap_s:.3g} s"
        if gap_s > self._longest_gap_s:
            return f"no heartbeat for {gap_s:.3g} s: the clock jumped, or a role hung"
        return None
