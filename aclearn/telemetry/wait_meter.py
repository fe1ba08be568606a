"""A thread's time by what it waits for and by part of its work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

TOTAL: Final = "total"
WORKING: Final = "working"
#: A wait for the lock of another worker of the same process.
OTHER_WORKERS: Final = "the other workers"
#: A wait's name among the parts of a meter: "waiting for unrolls".
WAITING_FOR: Final = "waiting for "
#: Waits of the thread that are work of the process, whose emulator threads do it.
_WORK_OF_OTHERS: Final = frozenset({"emulator"})
#: Attempts before the last reading counts; it is off by one span at most.
_MOST_READS = 1000


class Span:
    """One label of a meter, made once so that a use costs little more than two clock reads."""

    __slots__ = ("_meter", "seconds")

    def __init__(self, meter: WaitMeter) -> None:
        self._meter = meter
        self.seconds = 0.0

    def __enter__(self) -> None:
        meter = self._meter
        meter._changes += 1
        now = meter._clock()
        meter._open[-1].seconds += now - meter._since
        meter._since = now
        meter._open.append(self)
        meter._changes += 1

    def __exit__(self, *_: object) -> None:
        meter = self._meter
        meter._changes += 1
        now = meter._clock()
        meter._open.pop().seconds += now - meter._since
        meter._since = now
        meter._changes += 1


class WaitMeter:
    """Seconds of one thread since the meter was made, by wait and by part of its work.

    Every moment counts once: a span inside another one takes its time out of the outer one. Spans
    are entered by one thread; any thread may read.

        with meter.waiting("actions"):
            reply = client.receive(timeout_s)
        with meter.part("inference"):
            output = executable.step(observations)
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waits: dict[str, Span] = {}
        self._parts: dict[str, Span] = {}
        # Open spans, the innermost last; the first one is for time without a label.
        self._open = [Span(self)]
        self._began = self._since = clock()
        self._ended: float | None = None
        # A sequence lock: odd while the owner changes something. A lock would cost the owner as
        # much as the measuring itself.
        self._changes = 0

    def waiting(self, label: str) -> Span:
        """A context whose duration counts as waiting for `label`.

        Raises:
            ValueError: `label` is "total" or "working", which the meter fills itself.
        """
        return self._waits.get(label) or self._new(self._waits, label)

    def part(self, label: str) -> Span:
        """A context whose duration counts as the part `label` of the work; raises as `waiting`."""
        return self._parts.get(label) or self._new(self._parts, label)

    def end(self) -> None:
        """Stop the clock: the thread has ended."""
        self._ended = self._clock()

    def seconds(self) -> dict[str, float]:
        """Cumulative seconds waited by label, and under "total" those since the meter was made.

        An open wait counts up to now. For a heartbeat's `waits`.
        """
        waits, _, total = self._read()
        return {**waits, TOTAL: total}

    def parts(self) -> dict[str, float]:
        """Cumulative seconds by part of the work, by "waiting for …", and under "total" all.

        Time without a label is in the total only. For a heartbeat's `parts`.
        """
        waits, parts, total = self._read()
        for label, seconds in waits.items():
            name = label if label in _WORK_OF_OTHERS else WAITING_FOR + label
            parts[name] = parts.get(name, 0.0) + seconds
        return {**parts, TOTAL: total}

    def _new(self, spans: dict[str, Span], label: str) -> Span:
        if label in (TOTAL, WORKING):
            raise ValueError(f"a span cannot be called {label!r}: the meter uses it")
        return spans.setdefault(label, Span(self))

    def _read(self) -> tuple[dict[str, float], dict[str, float], float]:
        """Seconds by wait and by part, and the total, all of one moment."""
        for _ in range(_MOST_READS):
            changes = self._changes
            now = self._clock() if self._ended is None else self._ended
            open_span, lasts_s = self._open[-1], max(0.0, now - self._since)
            waits, parts = (
                # a list first: the owner may add a label while it is gone through
                {
                    label: span.seconds + (lasts_s if span is open_span else 0.0)
                    for label, span in list(spans.items())
                }
                for spans in (self._waits, self._parts)
            )
            if changes == self._changes and changes % 2 == 0:
                break
            time.sleep(0)  # let the owner finish its few lines
        return waits, parts, now - self._began


class BusyShare:
    """How busy a meter's thread was between two calls of its only reader."""

    def __init__(self, meter: WaitMeter) -> None:
        self._meter = meter
        self._before: dict[str, float] = {}

    def take(self) -> float:
        """Share of the time since the last call in which the thread did not wait, 0 to 1."""
        before, self._before = self._before, self._meter.seconds()
        return shares(before, self._before)[WORKING]


def shares(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """The share of each label in the time between two `WaitMeter.seconds()`.

    The shares add up to 1; "working" is the rest, or all where no time has passed. An empty
    `before` stands for the meter's start.

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
