"""Time that counts only while somebody looks."""

from __future__ import annotations


class ActiveClock:
    """Seconds that passed while somebody looked: the clock by which others are silent, or hang.

    A process that stood still — stopped, paused with its container, held up by a disk — has heard
    nothing meanwhile, and finds the clock far ahead. Nobody is to blame for that time.

    Args:
        most_s: of the time between two looks no more than that counts.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._looked_at: float | None = None
        #: Up to the last look, since the first.
        self.seconds = 0.0

    def look(self, now: float) -> float:
        """Look at the clock; returns how long nobody had looked when that was too long, else 0."""
        away_s = 0.0 if self._looked_at is None else now - self._looked_at
        # in this order: a thread that asks in between gets a later time, not an earlier one
        self.seconds += min(away_s, self._most_s)
        self._looked_at = now
        return away_s if away_s > self._most_s else 0.0

    def at(self, now: float) -> float:
        """What `seconds` would be after a look; from any thread."""
        looked_at = now if self._looked_at is None else self._looked_at
        return self.seconds + min(now - looked_at, self._most_s)
