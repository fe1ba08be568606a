"""One measurement of the tuner: wait for the counts, let them settle, then count over a window."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """A rate per second and the seconds over which it was measured."""

    rate: float
    window_s: float


class RateWindow:
    """Measures the rate of a cumulative counter under one setting. Pure: time is an argument.

    The rate is Δcounter/Δt between two samples in which the counter had just risen: it grows by
    whole batches, and with five of them in a window one would be an error of a fifth. A setting
    counts as applied only once the counter has risen, at the start and after each break: a role
    reports its workers long before they work.

    Args:
        settle_s: pause between the application of a setting and the window, in seconds.
        longest_gap_s: between two samples; a longer one is a clock that jumped or a sleep.
    """

    def __init__(self, *, settle_s: float, longest_gap_s: float) -> None:
        self._settle_s, self._longest_gap_s = settle_s, longest_gap_s
        self._last: tuple[float, int, str] | None = None
        self._has_risen = False
        self._rose_s: float | None = None
        self._batch_s = 0.0

    def begin(self, now: float, *, settled: bool = False) -> None:
        """Start a measurement; with `settled` its setting has run already."""
        self._asked_at, self._pause_s = now, 0.0 if settled else self._settle_s
        #: Time from which the setting is measured; None until it runs.
        self._since: float | None = None
        #: Time and counter of each rise in the window.
        self._rises: list[tuple[float, int]] = []

    def waited_s(self, now: float) -> float:
        """Seconds since the setting was requested; 0 once it runs."""
        return now - self._asked_at if self._since is None else 0.0

    def observe(
        self, now: float, counter: int, *, runs: bool, incarnation: str = "", died: bool = False
    ) -> Reading | str | None:
        """Take a sample.

        Args:
            runs: whether the roles run the measured setting.
            incarnation: of the process that counts; another one counts from 0 after a death.
            died: whether another role died since the last sample and must break the window.

        Returns:
            The reading so far, None before the first, or why the window begins again.
        """
        if self._last is None:
            self._last = (now, counter, incarnation)
            self.begin(now)
        (then, counted, counting), self._last = self._last, (now, counter, incarnation)
        found: Reading | str | None = None
        if incarnation != counting or counter < counted:
            found = "the trainer was started again"
        elif died:
            found = "a role died and was started again"
        elif self._since is not None and not runs:
            found = "the counts changed while they were measured"
        elif not 0.0 <= now - then <= self._longest_gap_s:
            found = f"no heartbeat for {now - then:.3g} s: the clock jumped, or a role hung"
        elif runs:
            found = self._measure(now, counter, rose=counter > counted)
        broken = isinstance(found, str)
        self._has_risen = counter > counted or (self._has_risen and not broken)
        if counting != incarnation:
            self._rose_s = None
        elif counter > counted:
            if self._rose_s is not None:  # also across windows: a batch may outlast them
                self._batch_s = max(0.0, now - self._rose_s)
            self._rose_s = now
        if broken:
            self.begin(now)
        return found

    def _measure(self, now: float, counter: int, *, rose: bool) -> Reading | str | None:
        if self._since is None:
            if not (rose or self._has_risen):
                return None
            self._since = now + self._pause_s
        if now < self._since:
            return None
        if rose:
            self._rises.append((now, counter))
        if len(self._rises) < 2:
            silent_s = now - (self._rises[0][0] if self._rises else self._since)
            # the first batch may be on its way
            patience_s = max(self._longest_gap_s, 2 * self._batch_s)
            return f"nothing was counted for {silent_s:.3g} s" if silent_s > patience_s else None
        (start, first), (end, last) = self._rises[0], self._rises[-1]
        self._batch_s = (end - start) / (len(self._rises) - 1)
        # in the time of one batch the next one is not late yet
        window_s = end - start + max(0.0, now - end - self._batch_s)
        # two samples of one moment are no window
        return Reading((last - first) / window_s, window_s) if window_s > 0.0 else None
