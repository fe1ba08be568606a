"""Decides whether and when a dead role is restarted."""

from __future__ import annotations

from collections import deque


class RestartPolicy:
    """Allows a bounded number of restarts in a sliding window, with doubling delays.

    Only failures inside the window count, so a role that ran well for longer has all restarts and
    the first delay again.
    """

    def __init__(
        self, max_restarts: int, window_s: float, backoff_first_s: float, backoff_max_s: float
    ) -> None:
        self._max_restarts = max_restarts
        self._window_s = window_s
        self._backoff_first_s = backoff_first_s
        self._backoff_max_s = backoff_max_s
        self._failures: deque[float] = deque(maxlen=max_restarts + 1)

    def failed(self, now: float) -> float | None:
        """Count a failure; the delay in seconds before the restart, None if none is left."""
        self._failures.append(now)
        while now - self._failures[0] >= self._window_s:
            self._failures.popleft()
        count = len(self._failures)
        if count > self._max_restarts:
            return None
        # thousands of failures would overflow
        doubled = self._backoff_first_s * 2.0 ** min(count - 1, 60)
        return min(doubled, self._backoff_max_s)
