"""Plots of learning curves: the return over time and over steps."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aclearn.errors import AclearnError, RunFolderError
from aclearn.views.curve import Curve, Points
from aclearn.views.decision_marks import Mark, draw_marks
from aclearn.views.run_groups import Group, group_runs
from aclearn.views.seed_band import Axis, places_of, seed_band

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Style of a line that marks a value.
DASHED: Final[Mapping[str, Any]] = {"color": "0.35", "linestyle": "--", "linewidth": 1.0}
PICTURE_FORMATS = (".png", ".pdf", ".svg")


#: Characters of a legend that stand side by side above one panel; an entry's line takes so many.
_LEGEND_CHARACTERS: Final = 72
_HANDLE_CHARACTERS: Final = 8
_LABELS: Final[Mapping[Axis, str]] = {
    Axis.WALL: "wall time ({})",
    Axis.STEPS: "environment steps (agent steps)",
    Axis.LEARNED: "learned steps (agent steps)",
}
BOTH: Final = (Axis.WALL, Axis.STEPS)
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
        RunFolderError: no run has a mean return yet.
        AclearnError: the picture cannot be written.
    """
    check_picture(out)
    write_picture(figure_of_curves(curves, each=each, axes=axes), out)


def figure_of_curves(
    curves: Sequence[Curve], *, each: bool = False, axes: Sequence[Axis] = BOTH
) -> Figure:
    """A figure with the curves of all runs, which a notebook shows, and a panel for each axis.

    Runs that differ by their seeds and names only are one line: their interquartile mean, of fewer
    than five the mean, in its 95 % interval. It begins with the last of them and ends with the
    first; a run that ends before is left out. An evaluator's returns are a line of their own, in
    the same colour.

    Args:
        each: a line for each run instead.

    Raises:
        RunFolderError: no run has a mean return yet.
    """
    lines = [points for curve in curves for points in (curve.training, curve.evaluator)]
    if not any(points.returns for points in lines):
        names = ", ".join(curve.name for curve in curves)
        raise RunFolderError(
            f"there is no mean return yet in {names}, and nothing to draw: in every environment an "
            "episode must end first"
        )
    # Imported here for its 0.3 s. pyplot would need a display and keep every figure.
    from matplotlib.ticker import EngFormatter

    from aclearn.views.notebook_figure import NotebookFigure

    unit, unit_s = time_unit(max(points.time_s[-1] for points in lines if points.time_s))
    figure = NotebookFigure(figsize=(5.5 * len(axes), 4.5), layout="constrained")
    panels = figure.subplots(1, len(axes), sharey=True, squeeze=False)[0]
    for panel, axis in zip(panels, axes, strict=True):
        for group in group_runs(curves, each=each):
            _draw_group(panel, group, axis, unit_s, each=each)
        for target in sorted({c.target for c in curves if c.target is not None}):
            panel.axhline(target, label=f"target {target:g}", zorder=1, **DASHED)
        panel.set_xlabel(_LABELS[axis].format(unit))
        if axis != Axis.WALL:
            panel.xaxis.set_major_formatter(EngFormatter(sep=" "))
        draw_grid(panel)
        panel.set_xlim(left=0.0)
    evaluated = any(curve.evaluator.returns for curve in curves)
    label = "mean return of the newest 100 episodes"
    panels[0].set_ylabel(f"{label};\nevaluator: of one evaluation" if evaluated else label)
    handles, texts = panels[0].get_legend_handles_labels()
    fitting = int(_LEGEND_CHARACTERS * len(axes) / (max(map(len, texts)) + _HANDLE_CHARACTERS))
    columns = max(1, min(len(texts), 2 * len(axes), fitting))
    figure.legend(handles, texts, loc="outside upper center", ncols=columns, frameon=False)
    return figure


def _plain(label: str) -> str:
    """A label that a legend shows as it is: no mathematics, and none that it would leave out."""
    return (f" {label}" if label.startswith("_") else label).replace("$", r"\$")


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


def _draw_group(panel: Any, group: Group, axis: Axis, unit_s: float, *, each: bool) -> None:
    """Draw the returns of training, and in the same colour the evaluator's where there are any."""
    training = [curve.training for curve in group.curves]
    line, note = _draw_returns(panel, training, axis, unit_s, each=each, missing="a mean")
    line.set_label(_plain(group.label + note))
    if len(group.curves) == 1:
        [curve] = group.curves
        # learned steps are known from the first return on
        marks = curve.marks if axis != Axis.LEARNED or curve.training.time_s else []
        at = [_place_of(mark, curve, axis, unit_s) for mark in marks]
        draw_marks(panel, at, [mark.text for mark in marks], line.get_color())
    evaluator = [curve.evaluator for curve in group.curves]
    if any(points.returns for points in evaluator):
        style = {"color": line.get_color(), "linestyle": "-.", "marker": "o", "markersize": 3}
        line, note = _draw_returns(
            panel, evaluator, axis, unit_s, each=each, missing="an evaluation", style=style
        )
        line.set_label(_plain(f"{group.label}, evaluator{note}"))


def _draw_returns(
    panel: Any,
    runs: Sequence[Points],
    axis: Axis,
    unit_s: float,
    *,
    each: bool,
    missing: str,
    style: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Any, str]:
    """Draw a run's line, or the mean and interval of several; returns the line and what it is.

    Args:
        missing: what a run without points has none of.
    """
    band = seed_band(runs, axis, missing=missing)
    style = {"linewidth": 1.6, **style}
    if len(band.x) and band.x[0] == band.x[-1]:
        style["marker"] = "o"  # a line of one point would be invisible
    elif band.runs > 1:
        style["marker"] = None
    x = band.x / (unit_s if axis == Axis.WALL else 1.0)
    [line] = panel.plot(x, band.y, **style)
    if band.low is not None:
        panel.fill_between(x, band.low, band.high, color=line.get_color(), alpha=0.2, lw=0)
    hidden = each and len(band.x) and band.low is None
    return line, "" if hidden else f" ({band.note})"


def _place_of(mark: Mark, curve: Curve, axis: Axis, unit_s: float) -> float:
    if axis == Axis.LEARNED:
        places = places_of(curve.training, axis)
        return float(np.interp(mark.time_s, curve.training.time_s, places))
    return mark.time_s / unit_s if axis == Axis.WALL else mark.env_steps


def draw_grid(axes: Any) -> None:
    """A light grid, and no frame at the top and the right."""
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
