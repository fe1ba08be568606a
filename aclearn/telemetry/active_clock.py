"""A clock without the time in which the process was suspended."""

from __future__ import annotations


class ActiveClock:
    """Seconds in which the process ran, for measuring the silence of others.

    A process that was stopped, or paused with its container, received nothing meanwhile. That time
    must not count as another's silence.

    Args:
        most_s: limit of the time that counts between two looks.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._looked_at: float | None = None
        #: From the first to the last look.
        self.seconds = 0.0

    def look(self, now: float) -> float:
        """Count the time since the last look; returns it in seconds if it was cut, else 0."""
        away_s = 0.0 if self._looked_at is None else now - self._looked_at
        # in this order: another thread that asks in between gets a later time, not an earlier one
        self.seconds += min(away_s, self._most_s)
        self._looked_at = now
        return away_s if away_s > self._most_s else 0.0

    def at(self, now: float) -> float:
        """The value of `seconds` after a look now; from any thread."""
        looked_at = now if self._looked_at is None else self._looked_at
        return self.seconds + min(now - looked_at, self._most_s)
