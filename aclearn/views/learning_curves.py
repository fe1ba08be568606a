"""Plots of learning curves: the return over time and over steps."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aclearn.errors import AclearnError, RunFolderError
from aclearn.metrics.seed_statistics import estimate
from aclearn.views.curve import Curve
from aclearn.views.decision_marks import Mark, draw_marks
from aclearn.views.run_groups import group_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Style of a line that marks a value.
DASHED: Final[Mapping[str, Any]] = {"color": "0.35", "linestyle": "--", "linewidth": 1.0}
PICTURE_FORMATS = (".png", ".pdf", ".svg")


class Axis(StrEnum):
    """What a curve is drawn over."""

    WALL = "wall"
    STEPS = "steps"
    LEARNED = "learned"


_LABELS: Final[Mapping[Axis, str]] = {
    Axis.WALL: "wall time ({})",
    Axis.STEPS: "environment steps (agent steps)",
    Axis.LEARNED: "learned steps (agent steps)",
}
BOTH: Final = (Axis.WALL, Axis.STEPS)
#: Points of the mean of several runs, whose own points differ, and draws for its interval.
_BAND_POINTS, _BAND_RESAMPLES = 400, 2000
# (name of the time unit, its seconds, used from this many seconds on)
_TIME_UNITS = (("hours", 3600.0, 2 * 3600.0), ("minutes", 60.0, 120.0), ("seconds", 1.0, 0.0))


def plot_curves(
    curves: Sequence[Curve],
    out: Path,
    *,
    each: bool = False,
    axes: Sequence[Axis] = BOTH,
) -> None:
    """Draw the curves of all runs into one picture, as `figure_of_curves` does.

    Args:
        out: the picture, a .png, .pdf or .svg; an existing one is replaced.

    Raises:
        RunFolderError: no run has ended an episode yet.
        AclearnError: the picture cannot be written.
    """
    check_picture(out)
    write_picture(figure_of_curves(curves, each=each, axes=axes), out)


def figure_of_curves(
    curves: Sequence[Curve], *, each: bool = False, axes: Sequence[Axis] = BOTH
) -> Figure:
    """A figure with the curves of all runs, which a notebook shows, and a panel for each axis.

    Runs that differ by their seeds and names only are one line: their interquartile mean, of fewer
    than five the mean, in its 95 % interval. It ends where the first of them ends.

    Args:
        each: a line for each run instead.

    Raises:
        RunFolderError: no run has ended an episode yet.
    """
    if not any(curve.returns for curve in curves):
        names = ", ".join(curve.name for curve in curves)
        raise RunFolderError(f"no episode has ended yet in {names}: there is nothing to draw")
    # Imported here for its 0.3 s. pyplot would need a display and keep every figure.
    from matplotlib.ticker import EngFormatter

    from aclearn.views.notebook_figure import NotebookFigure

    unit, unit_s = time_unit(max(c.time_s[-1] for c in curves if c.time_s))
    figure = NotebookFigure(figsize=(5.5 * len(axes), 4.5), layout="constrained")
    panels = figure.subplots(1, len(axes), sharey=True, squeeze=False)[0]
    for panel, axis in zip(panels, axes, strict=True):
        for group in group_runs(curves, each=each):
            drawn = [curve for curve in group.curves if curve.returns] or group.curves
            places = [_places(curve, axis, unit_s) for curve in drawn]
            line, note = _draw_returns(panel, places, [curve.returns for curve in drawn])
            if len(drawn) < len(group.curves):
                note += f"; {len(group.curves) - len(drawn)} without an episode"
            if len(drawn) == 1:
                at = [_place_of(mark, drawn[0], axis, unit_s) for mark in drawn[0].marks]
                draw_marks(panel, at, [mark.text for mark in drawn[0].marks], line.get_color())
                if each and drawn[0].returns:
                    note = ""
            line.set_label(f"{group.label} ({note})" if note else group.label)
        for target in sorted({c.target for c in curves if c.target is not None}):
            panel.axhline(target, label=f"target {target:g}", zorder=1, **DASHED)
        panel.set_xlabel(_LABELS[axis].format(unit))
        if axis != Axis.WALL:
            panel.xaxis.set_major_formatter(EngFormatter(sep=" "))
        draw_grid(panel)
        panel.set_xlim(left=0.0)
    panels[0].set_ylabel("mean return of the newest 100 episodes")
    handles, texts = panels[0].get_legend_handles_labels()
    columns = min(len(texts), 2 * len(axes))
    figure.legend(handles, texts, loc="outside upper center", ncols=columns, frameon=False)
    return figure


def check_picture(out: Path) -> None:
    """Raise `AclearnError` unless `out` ends in a picture format that we can draw."""
    if out.suffix.lower() not in PICTURE_FORMATS:
        raise AclearnError(
            f"{out}: expected a name that ends in one of {', '.join(PICTURE_FORMATS)} for the "
            "picture"
        )


def write_picture(figure: Any, out: Path) -> None:
    """Write a figure to a file, making its folder.

    Raises:
        ConfigError: the file cannot be written.
    """
    from aclearn.runs import write_file  # roles that import this package write no picture

    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format=out.suffix.lower().removeprefix("."))
    write_file(out, picture.getvalue(), "--out")


def time_unit(longest_s: float) -> tuple[str, float]:
    """Name and seconds of the unit for an axis of this length."""
    return next((n, s) for n, s, since_s in _TIME_UNITS if longest_s >= since_s)


def _places(curve: Curve, axis: Axis, unit_s: float) -> Sequence[float]:
    """The places of a curve's points along an axis, which never fall."""
    if axis == Axis.WALL:
        return [time_s / unit_s for time_s in curve.time_s]
    steps = curve.env_steps if axis == Axis.STEPS else curve.learned_steps
    # a trainer that goes back to its checkpoint has learned less
    return list(np.maximum.accumulate(steps)) if steps else []


def _place_of(mark: Mark, curve: Curve, axis: Axis, unit_s: float) -> float:
    if axis == Axis.LEARNED:
        return float(np.interp(mark.time_s, curve.time_s, _places(curve, axis, unit_s)))
    return mark.time_s / unit_s if axis == Axis.WALL else mark.env_steps


def _draw_returns(
    panel: Any, places: Sequence[Sequence[float]], returns: Sequence[Sequence[float]]
) -> tuple[Any, str]:
    """Draw a run's line, or the mean and interval of several; returns the line and what it is."""
    style: dict[str, Any] = {"linewidth": 1.6}
    if len(places) == 1:
        if len(returns[0]) == 1:
            style["marker"] = "o"  # a line of one point would be invisible
        [line] = panel.plot(places[0], returns[0], **style)
        return line, "1 run, no interval" if returns[0] else "no episode yet"
    first, last = max(x[0] for x in places), min(x[-1] for x in places)
    grid = np.linspace(first, max(first, last), _BAND_POINTS)
    rows = np.array([np.interp(grid, x, y) for x, y in zip(places, returns, strict=True)])
    found = estimate(rows, resamples=_BAND_RESAMPLES)
    [line] = panel.plot(grid, found.value, **style)
    assert found.low is not None and found.high is not None  # of several runs
    panel.fill_between(grid, found.low, found.high, color=line.get_color(), alpha=0.2, lw=0)
    return line, f"{found.name} of {len(rows)} runs, 95 % interval"


def draw_grid(axes: Any) -> None:
    """A light grid, and no frame at the top and the right."""
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
