"""Several runs as one line in its interval, along an axis. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aclearn.metrics.seed_statistics import estimate
from aclearn.views.curve import Points

#: Points of the line of several runs, whose own points differ, and draws for its interval.
_POINTS, _RESAMPLES = 400, 2000


class Axis(StrEnum):
    """What a curve is drawn over."""

    WALL = "wall"
    STEPS = "steps"
    LEARNED = "learned"


class SeedBand(NamedTuple):
    """The line of the runs of a group.

    Attributes:
        x: along the axis, in seconds or steps; empty if no run has begun.
        y: the return, of several runs their interquartile mean, of fewer than five the mean.
        low: the lower end of the 95 % interval, of a single evaluated run of the standard error;
            None where there is neither. So is `high`, the upper end.
        runs: number of runs in it.
        note: what line and interval are, and how many runs are left out.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    runs: int
    note: str


def seed_band(runs: Sequence[Points], axis: Axis, *, missing: str = "a mean") -> SeedBand:
    """The line of runs, which begins with the last of them and ends with the first.

    A run that ends before is left out, and so is one without points.

    Args:
        missing: what a run without points has none of.
    """
    begun = [points for points in runs if points.returns]
    drawn = _overlapping(begun)
    counts = {f"without {missing}": len(runs) - len(begun), "too short": len(begun) - len(drawn)}
    left_out = "".join(f"; {count} {why}" for why, count in counts.items() if count)
    if not drawn:
        return SeedBand(np.zeros(0), np.zeros(0), None, None, 0, "no mean yet")
    if len(drawn) == 1:
        return _of_one(drawn[0], axis, left_out)
    places = [places_of(points, axis) for points in drawn]
    grid = np.linspace(max(x[0] for x in places), min(x[-1] for x in places), _POINTS)
    rows = [np.interp(grid, x, of.returns) for x, of in zip(places, drawn, strict=True)]
    found = estimate(rows, resamples=_RESAMPLES)
    note = f"{found.name} of {len(rows)} runs, 95 % interval{left_out}"
    return SeedBand(grid, found.value, found.low, found.high, len(rows), note)


def places_of(points: Points, axis: Axis) -> NDArray[np.float64]:
    """The places of a run's points along an axis, in seconds or steps, which never fall."""
    if axis == Axis.WALL:
        return _floats(points.time_s)
    steps = points.env_steps if axis == Axis.STEPS else points.learned_steps
    # a trainer that goes back to its checkpoint has learned less
    return _floats(np.maximum.accumulate(steps) if steps else [])


def _of_one(points: Points, axis: Axis, left_out: str) -> SeedBand:
    x, y, errors = places_of(points, axis), _floats(points.returns), points.standard_errors
    if not errors:
        return SeedBand(x, y, None, None, 1, f"1 run, no interval{left_out}")
    return SeedBand(x, y, y - errors, y + errors, 1, f"1 run, ± standard error{left_out}")


def _overlapping(runs: Sequence[Points]) -> Sequence[Points]:
    """The runs that have not ended, along any axis, where the last of them begins."""
    for axis in Axis:  # along all of them, since a label is for all panels
        places = [places_of(run, axis) for run in runs]
        first = max((x[0] for x in places), default=0.0)
        runs = [run for run, x in zip(runs, places, strict=True) if x[-1] >= first]
    return runs


def _floats(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, np.float64)
