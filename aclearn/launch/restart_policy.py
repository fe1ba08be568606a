"""Decides whether and when a dead role is restarted."""

from __future__ import annotations

from collections import deque


class RestartPolicy:
    """Allows a bounded number of restarts in a sliding window, with doubling delays.

    Only failures inside the window count, so a role that ran well for longer has all restarts and
    the first delay again.

    Args:
        max_restarts: restarts allowed within any window; 0 allows none.
        window_s: length of the window in seconds.
        backoff_first_s: delay before the first restart.
        backoff_max_s: largest delay.

    Raises:
        ValueError: a number is negative, the window is empty, or the delays are out of order.
    """

    def __init__(
        self, max_restarts: int, window_s: float, backoff_first_s: float, backoff_max_s: float
    ) -> None:
        if max_restarts < 0:
            raise ValueError(f"max_restarts: expected 0 or more, got {max_restarts}")
        if not window_s > 0:
            raise ValueError(f"window_s: expected more than 0 seconds, got {window_s}")
        if not 0 <= backoff_first_s <= backoff_max_s:
            raise ValueError(
                "backoff_first_s and backoff_max_s: expected 0 <= first <= max, "
                f"got {backoff_first_s} and {backoff_max_s}"
            )
        self._max_restarts = max_restarts
        self._window_s = window_s
        self._backoff_first_s = backoff_first_s
        self._backoff_max_s = backoff_max_s
        self._failures: deque[float] = deque(maxlen=max_restarts + 1)

    def failed(self, now: float) -> float | None:
        """Count a failure; returns the delay in seconds before the restart, None if none is left.

        Args:
            now: seconds of a monotonic clock.
        """
        self._failures.append(now)
        while now - self._failures[0] >= self._window_s:
            self._failures.popleft()
        count = len(self._failures)
        if count > self._max_restarts:
            return None
        # thousands of failures would overflow
        doubled = self._backoff_first_s * 2.0 ** min(count - 1, 60)
        return min(doubled, self._backoff_max_s)
