"""Progress of a run towards its goal, and its remaining time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import linear_regression
from typing import Any

from aclearn.metrics.formatting import amount, duration

_POINTS = 1024  # the last half hour at a line every 2 s
_LEAST_SPAN_S = 10.0
# A trend is extended to at most this multiple of its own time span.
_FORESIGHT = 10.0


@dataclass(frozen=True)
class Progress:
    """Progress of the run.

    Attributes:
        label: the goal as text, e.g. "return 12.3 of 18".
        fraction: between 0 and 1; None without an end.
        remaining_s: estimated seconds to the goal; None if unknown.
        latest_s: seconds after which another bound ends the run; None without one.
    """

    label: str
    fraction: float | None
    remaining_s: float | None
    latest_s: float | None

    def remaining(self) -> str:
        """The remaining time as text: "0:03:10 to go", "at most 0:40:00 to go"."""
        if self.fraction is None:
            return "runs until it is stopped"
        sooner = [s for s in (self.remaining_s, self.latest_s) if s is not None]
        if not sooner:
            return "remaining time not known yet"
        if self.remaining_s is None:
            return f"at most {duration(self.latest_s)} to go"
        return f"{duration(min(sooner))} to go"


class ProgressEstimate:
    """Turns metrics lines into progress towards a goal. Its clock is the lines' `time_s`.

    Args:
        goal: any of `target_return`, `stop_at_target`, `max_env_steps`, `max_updates` and
            `max_wall_s`, as in the configuration's `run`; None or missing means not set. Progress
            is towards the first that is set; the others bound the remaining time.
    """

    def __init__(self, goal: Mapping[str, float | None]) -> None:
        self._goal = goal
        self._returns: deque[tuple[float, float]] = deque(maxlen=_POINTS)
        self._lowest: float | None = None
        self._first: tuple[float, float] | None = None

    def observe(self, line: Mapping[str, Any]) -> Progress:
        """Progress as of this metrics line."""
        time_s = float(line.get("time_s") or 0.0)
        value = line.get("judged_return")
        if value is not None:
            self._returns.append((time_s, float(value)))
            self._lowest = min(float(value), self._lowest if self._lowest is not None else value)
        bounds = self._bounds(line, time_s)
        latest_s = min((s for _, _, s in bounds if s is not None), default=None)
        target = self._goal.get("target_return")
        if target is not None:
            reached = value is not None and value >= target
            # a run that continues beyond its target is measured against its bound
            if not (reached and bounds and self._goal.get("stop_at_target") == 0):
                return self._towards_return(float(target), value, latest_s)
        if not bounds:
            return Progress("no end is set", None, None, None)
        label, fraction, remaining_s = bounds[0]
        return Progress(label, fraction, remaining_s, latest_s)

    def _towards_return(
        self, target: float, value: float | None, latest_s: float | None
    ) -> Progress:
        if value is None or self._lowest is None:
            return Progress(f"return of {target:g}, no mean yet", 0.0, None, latest_s)
        label = f"return {value:.1f} of {target:g}"
        if value >= target:
            return Progress(label, 1.0, 0.0, latest_s)
        fraction = (value - self._lowest) / (target - self._lowest)
        return Progress(label, fraction, self._time_to(target, value), latest_s)

    def _time_to(self, target: float, value: float) -> float | None:
        """Seconds until the least-squares trend of the last third of the run meets the target."""
        now = self._returns[-1][0]
        since = now - max(now / 3.0, 3.0 * _LEAST_SPAN_S)
        points = [point for point in self._returns if point[0] >= since]
        span_s = now - points[0][0]
        if span_s < _LEAST_SPAN_S:
            return None
        slope, _ = linear_regression(*zip(*points, strict=True))
        if slope <= 0.0:
            return None
        remaining_s = (target - value) / slope
        return remaining_s if remaining_s <= _FORESIGHT * span_s else None

    def _bounds(
        self, line: Mapping[str, Any], time_s: float
    ) -> list[tuple[str, float, float | None]]:
        """(label, fraction, seconds to go) of each bound that is set."""
        steps, updates = float(line.get("env_steps") or 0), float(line.get("updates") or 0)
        if self._first is None:
            self._first = (time_s, updates)
        elapsed_s = time_s - self._first[0]
        updates_per_s = (updates - self._first[1]) / elapsed_s if elapsed_s > 0 else 0.0
        steps_per_s = float(line.get("env_steps_per_s") or 0.0)
        bounds: list[tuple[str, float, float | None]] = []
        for key, done, rate, words, unit in (
            ("max_env_steps", steps, steps_per_s, amount, " steps"),
            ("max_updates", updates, updates_per_s, amount, " updates"),
            ("max_wall_s", time_s, 1.0, duration, ""),
        ):
            most = self._goal.get(key)
            if most is not None:
                label = f"{words(done)} of {words(most)}{unit}"
                bounds.append((label, *_part(done, float(most), rate)))
        return bounds


def _part(done: float, whole: float, rate_per_s: float) -> tuple[float, float | None]:
    """The fraction done, at most 1, and the remaining seconds; None without progress."""
    if done >= whole:
        return 1.0, 0.0
    return done / whole, (whole - done) / rate_per_s if rate_per_s > 0 else None
