"""One meter for each thread of a role, and their sums."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

from aclearn.telemetry.wait_meter import Span, WaitMeter

_HERE = threading.local()
_NOT_MEASURED = contextlib.nullcontext()


def measure_here(meter: WaitMeter) -> None:
    """Make `part` and `waiting` in the calling thread use `meter`."""
    _HERE.meter = meter


def part(label: str) -> Span | contextlib.nullcontext[None]:
    """`WaitMeter.part` of the calling thread's meter; no effect without one.

    For code that is too deep to get a meter as an argument:

        with part("forward"):
            parameters, values = network(observations)
    """
    meter: WaitMeter | None = getattr(_HERE, "meter", None)
    return _NOT_MEASURED if meter is None else meter.part(label)


def waiting(label: str) -> Span | contextlib.nullcontext[None]:
    """`WaitMeter.waiting` of the calling thread's meter, as `part`."""
    meter: WaitMeter | None = getattr(_HERE, "meter", None)
    return _NOT_MEASURED if meter is None else meter.waiting(label)


class ThreadMeters:
    """Makes a meter for each thread and sums their seconds; thread-safe.

    meter = meters.meter()      # in the worker
    with meter.part("forward"):
        ...
    meters.retire(meter)        # the worker ends: its seconds stay
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._meters: list[WaitMeter] = []
        self._past_waits: dict[str, float] = {}
        self._past_parts: dict[str, float] = {}

    def meter(self) -> WaitMeter:
        """A meter for one more thread."""
        meter = WaitMeter(self._clock)
        with self._lock:
            self._meters.append(meter)
        return meter

    def retire(self, meter: WaitMeter) -> None:
        """End the meter of a thread that has ended; a second call has no effect."""
        with self._lock:
            if meter not in self._meters:
                return
            meter.end()
            self._meters.remove(meter)
            self._past_waits = add_up(self._past_waits, meter.seconds())
            self._past_parts = add_up(self._past_parts, meter.parts())

    def waits(self) -> dict[str, float]:
        """`WaitMeter.seconds()` summed over the threads, for a heartbeat's `waits`."""
        with self._lock:
            return add_up(self._past_waits, *(meter.seconds() for meter in self._meters))

    def parts(self) -> dict[str, float]:
        """`WaitMeter.parts()` summed over the threads, for a heartbeat's `parts`."""
        with self._lock:
            return add_up(self._past_parts, *(meter.parts() for meter in self._meters))


def add_up(*seconds: Mapping[str, float]) -> dict[str, float]:
    """The sums by label."""
    sums: dict[str, float] = {}
    for each in seconds:
        for label, value in each.items():
            sums[label] = sums.get(label, 0.0) + value
    return sums
