"""Where a thread's time goes: seconds waited by label, the rest is work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final

TOTAL: Final = "total"
WORKING: Final = "working"


class _Waiting:
    """One label of a meter, made once so that a use costs little more than two clock reads."""

    __slots__ = ("_clock", "seconds", "started")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seconds = 0.0
        self.started: float | None = None

    def __enter__(self) -> None:
        self.started = self._clock()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        started = self.started
        if started is not None:
            self.seconds += self._clock() - started
            self.started = None


class WaitMeter:
    """Seconds that one thread has waited since the meter was made, by label.

    Not thread-safe: one meter a thread. Waits must not be nested, else they are counted twice.

        with meter.waiting("actions"):
            reply = client.receive(timeout_s)
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._labels: dict[str, _Waiting] = {}

    def waiting(self, label: str) -> _Waiting:
        """A context whose duration counts as waiting for `label`.

        Raises:
            ValueError: `label` is "total" or "working", which the meter fills itself.
        """
        try:
            return self._labels[label]
        except KeyError:
            if label in (TOTAL, WORKING):
                raise ValueError(f"a wait cannot be called {label!r}: the meter uses it") from None
            return self._labels.setdefault(label, _Waiting(self._clock))

    def seconds(self) -> dict[str, float]:
        """Cumulative seconds by label, and under "total" those since the meter was made.

        A wait that goes on counts up to now. This is what goes into a beat's `waits`.
        """
        now = self._clock()
        seconds = {
            label: wait.seconds + (now - wait.started if wait.started is not None else 0.0)
            for label, wait in self._labels.items()
        }
        seconds[TOTAL] = now - self._began
        return seconds


def shares(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What part of the time between two `WaitMeter.seconds()` went to each label.

    The parts add up to 1; "working" is what no label explains. `before` may be empty: then from the
    meter's start. Where no time has passed, everything is "working".

    Raises:
        ValueError: `after` has no "total".
    """
    if TOTAL not in after:
        raise ValueError(f"`after` must come from WaitMeter.seconds(); it has only {sorted(after)}")
    waited = {
        label: max(0.0, seconds - before.get(label, 0.0))
        for label, seconds in after.items()
        if label != TOTAL
    }
    # Two clock reads apart, the labels may exceed the total by a rounding error.
    elapsed = max(after[TOTAL] - before.get(TOTAL, 0.0), sum(waited.values()))
    if elapsed <= 0.0:
        return {WORKING: 1.0}
    parts = {label: seconds / elapsed for label, seconds in waited.items()}
    parts[WORKING] = max(0.0, 1.0 - sum(parts.values()))
    return parts
