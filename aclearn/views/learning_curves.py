"""Plots of learning curves: the return over time and over steps."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aclearn.errors import AclearnError, RunFolderError
from aclearn.views.decision_marks import Mark, draw_marks, read_marks
from aclearn.views.line_files import read_lines, unusable_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Style of a line that marks a value.
DASHED: Final[Mapping[str, Any]] = {"color": "0.35", "linestyle": "--", "linewidth": 1.0}
PICTURE_FORMATS = (".png", ".pdf", ".svg")
_RETURN = "return_mean_100"
#: Points of the mean of several runs, whose own points differ.
_BAND_POINTS = 400
# (name of the time unit, its seconds, used from this many seconds on)
_TIME_UNITS = (("hours", 3600.0, 2 * 3600.0), ("minutes", 60.0, 120.0), ("seconds", 1.0, 0.0))


@dataclass(frozen=True)
class Curve:
    """One run's learning curve.

    Attributes:
        time_s: seconds since the run's start, one for each point.
        returns: mean return of the newest 100 episodes.
        target: the run's `target_return`; None without one.
        settings: of the run but its name, folder and seed, as text; "" if unknown.
    """

    name: str
    time_s: list[float]
    env_steps: list[float]
    returns: list[float]
    target: float | None
    marks: list[Mark] = field(default_factory=list)
    settings: str = field(default="", compare=False)


def read_curve(run_dir: Path) -> Curve:
    """The curve of a run, running or over. Lines before the first episode are left out.

    Raises:
        RunFolderError: it is no run folder, or has no metrics yet.
    """
    lines = read_lines(run_dir, "metrics.jsonl")
    points = [line for line in lines if isinstance(line.get(_RETURN), int | float)]
    if not lines:
        raise RunFolderError(
            f"{run_dir / 'metrics.jsonl'} is empty: the run has written no metrics yet; wait a few "
            "seconds, or look into its logs"
        )
    config = _config(run_dir / "config.yaml")
    try:
        return Curve(
            name=run_dir.resolve().name,
            time_s=[float(line["time_s"]) for line in points],
            env_steps=[float(line["env_steps"]) for line in points],
            returns=[float(line[_RETURN]) for line in points],
            target=_target(config),
            marks=read_marks(run_dir),
            settings=_settings(config),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise unusable_line(run_dir / "metrics.jsonl", error) from error


def plot_runs(run_dirs: Sequence[Path], out: Path, *, each: bool = False) -> None:
    """Draw the curves of all runs into one picture with two panels.

    Runs that differ by their seeds only are one line, their mean, in a band from the least to the
    largest of them; it ends where the first of them ends.

    Args:
        out: the picture, a .png, .pdf or .svg; an existing one is replaced.

    Raises:
        RunFolderError: a run is missing or has no metrics, or no run has ended an episode yet.
        AclearnError: the picture cannot be written.
    """
    check_picture(out)
    write_picture(figure_of_runs(run_dirs, each=each), out)


def figure_of_runs(run_dirs: Sequence[Path], *, each: bool = False) -> Figure:
    """A figure with the curves of all runs, which a notebook shows.

    Raises:
        RunFolderError: as `plot_runs`.
    """
    if not run_dirs:
        raise RunFolderError("no run to plot; name at least one run folder")
    curves = [read_curve(run_dir) for run_dir in run_dirs]
    if not any(curve.returns for curve in curves):
        names = ", ".join(curve.name for curve in curves)
        raise RunFolderError(f"no episode has ended yet in {names}: there is nothing to draw")
    labels = _labels(run_dirs, curves)
    groups: dict[str, list[tuple[Curve, str]]] = {}
    for n, (curve, label) in enumerate(zip(curves, labels, strict=True)):
        alone = each or not curve.settings or not curve.returns
        groups.setdefault(str(n) if alone else curve.settings, []).append((curve, label))
    return _draw(
        [[curve for curve, _ in group] for group in groups.values()],
        [_label_of([label for _, label in group]) for group in groups.values()],
    )


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
    from aclearn.runs import write_file  # as above

    picture = io.BytesIO()
    figure.savefig(picture, dpi=150, format=out.suffix.lower().removeprefix("."))
    write_file(out, picture.getvalue(), "--out")


def time_unit(longest_s: float) -> tuple[str, float]:
    """Name and seconds of the unit for an axis of this length."""
    return next((n, s) for n, s, since_s in _TIME_UNITS if longest_s >= since_s)


def _draw(groups: Sequence[Sequence[Curve]], labels: Sequence[str]) -> Figure:
    # Imported here for its 0.3 s. pyplot would need a display and keep every figure.
    from matplotlib.ticker import EngFormatter

    from aclearn.views.notebook_figure import NotebookFigure

    curves = [curve for group in groups for curve in group]
    longest_s = max((curve.time_s[-1] for curve in curves if curve.time_s), default=0.0)
    unit, unit_s = time_unit(longest_s)
    figure = NotebookFigure(figsize=(11.0, 4.5), layout="constrained")
    over_time, over_steps = figure.subplots(1, 2, sharey=True)
    for group, label in zip(groups, labels, strict=True):
        times = [[t / unit_s for t in curve.time_s] for curve in group]
        returns, marks = [curve.returns for curve in group], group[0].marks
        colour = _draw_returns(over_time, times, returns, label)
        _draw_returns(over_steps, [curve.env_steps for curve in group], returns, label)
        if len(group) == 1:
            texts = [mark.text for mark in marks]
            draw_marks(over_time, [mark.time_s / unit_s for mark in marks], texts, colour)
            draw_marks(over_steps, [mark.env_steps for mark in marks], texts, colour)
    for target in sorted({c.target for c in curves if c.target is not None}):
        for axes in (over_time, over_steps):
            label = f"target {target:g}"
            axes.axhline(target, label=label, zorder=1, **DASHED)
    over_time.set_xlabel(f"wall time ({unit})")
    over_time.set_ylabel("mean return of the newest 100 episodes")
    over_steps.set_xlabel("environment steps (agent steps)")
    over_steps.xaxis.set_major_formatter(EngFormatter(sep=" "))
    for axes in (over_time, over_steps):
        draw_grid(axes)
        axes.set_xlim(left=0.0)
    handles, texts = over_time.get_legend_handles_labels()
    columns = min(len(texts), 4)
    figure.legend(handles, texts, loc="outside upper center", ncols=columns, frameon=False)
    return figure


def _draw_returns(
    axes: Any, places: Sequence[Sequence[float]], returns: Sequence[Sequence[float]], label: str
) -> Any:
    """Draw a run's line, or the mean and band of several; returns the colour."""
    style: dict[str, Any] = {"label": label, "linewidth": 1.6}
    if len(places) == 1:
        if len(returns[0]) == 1:
            style["marker"] = "o"  # a line of one point would be invisible
        [line] = axes.plot(places[0], returns[0], **style)
        return line.get_color()
    first, last = max(x[0] for x in places), min(x[-1] for x in places)
    grid = np.linspace(first, max(first, last), _BAND_POINTS)
    rows = np.array([np.interp(grid, x, y) for x, y in zip(places, returns, strict=True)])
    [line] = axes.plot(grid, rows.mean(0), **style)
    axes.fill_between(grid, rows.min(0), rows.max(0), color=line.get_color(), alpha=0.2, lw=0)
    return line.get_color()


def draw_grid(axes: Any) -> None:
    """A light grid, and no frame at the top and the right."""
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _labels(run_dirs: Sequence[Path], curves: Sequence[Curve]) -> list[str]:
    """Names for the legend; runs of the same name are prefixed with their folder."""
    names = [curve.name for curve in curves]
    return [
        (name if names.count(name) == 1 else str(run_dir))
        + ("" if curve.returns else " (no episode yet)")
        for name, run_dir, curve in zip(names, run_dirs, curves, strict=True)
    ]


def _label_of(labels: Sequence[str]) -> str:
    """The label of a line: a run's, or what the names of several have in common."""
    if len(labels) == 1:
        return labels[0]
    stems = {re.sub(r"[-_.]?\d+$", "", label) for label in labels}
    if len(stems) == 1:
        return f"{stems.pop()} ({len(labels)} runs)"
    return f"{labels[0]} and {len(labels) - 1} more"


def _config(path: Path) -> Mapping[str, Any]:
    """A run's configuration, of any version; {} if it cannot be read."""
    import yaml

    try:
        config = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return config if isinstance(config, dict) else {}


def _target(config: Mapping[str, Any]) -> float | None:
    """`run.target_return`; None if missing."""
    run = config.get("run")
    target = run.get("target_return") if isinstance(run, dict) else None
    return float(target) if isinstance(target, int | float) else None


def _settings(config: Mapping[str, Any]) -> str:
    """What runs of one configuration have in common; "" without one."""
    run = config.get("run")
    if not isinstance(run, dict) or "seed" not in run:
        return ""
    same = {key: value for key, value in run.items() if key not in ("name", "dir", "seed")}
    return json.dumps({**config, "run": same}, sort_keys=True, default=str)
