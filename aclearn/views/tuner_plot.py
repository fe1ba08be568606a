"""GA3C's figure of a run: the tuner's counts, readings and temperature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aclearn.errors import RunFolderError
from aclearn.views.learning_curves import (
    DASHED,
    check_picture,
    draw_grid,
    time_unit,
    write_picture,
)
from aclearn.views.line_files import read_lines, unusable_line

_NOT_KEPT = {"label": "tried, not kept", "color": "tab:red"}
_SYMBOLS = {"predictors": "N_P", "trainers": "N_T", "actors": "N_A"}


@dataclass(frozen=True)
class TunerHistory:
    """A tuner's decisions, one entry for each reading and for each trial that was given up.

    Attributes:
        counts: name → measured counts, also if they were not tuned; NaN if unknown.
        kept: name → counts that were kept afterwards; as `counts`.
        fixed: names of the counts that were not tuned.
        rates: per second; NaN for a trial that was given up.
        baselines: estimated rates of the kept counts, NaN before the first.
        reverted: whether its counts were not kept in the end, or are undecided.
    """

    time_s: list[float]
    counts: dict[str, list[float]]
    kept: dict[str, list[float]]
    fixed: list[str]
    rates: list[float]
    baselines: list[float]
    temperatures: list[float]
    reverted: list[bool]
    restarted_s: list[float]


def read_tuner_history(run_dir: Path) -> TunerHistory:
    """The readings in a run's `tuner.jsonl`, also during the run.

    Raises:
        RunFolderError: it has none, or a tuner did not write it.
    """
    from aclearn.runs import TUNER_FILE  # here as in `read_lines`

    path = run_dir / TUNER_FILE
    if run_dir.is_dir() and not path.exists():
        raise RunFolderError(
            f"there is no {path}: the tuner of this run was off; start one with tuner.enabled=true"
        )
    lines = read_lines(run_dir, TUNER_FILE)
    try:
        history = tuner_history(lines)
    except (KeyError, TypeError, ValueError) as error:
        raise unusable_line(path, error) from error
    if all(math.isnan(rate) for rate in history.rates):
        raise RunFolderError(
            f"{path} has no reading yet: no window has ended (tuner.settle_s and tuner.every_s "
            "after the first learned step, once every actor is there)"
        )
    return history


def tuner_history(decisions: Sequence[Mapping[str, Any]]) -> TunerHistory:
    """The readings among the decisions of a tuner.

    Raises:
        KeyError, TypeError, ValueError: a line lacks a value.
    """
    readings = [x for x in decisions if x["rate"] is not None or x["verdict"] == "given up"]

    def numbers(key: str) -> list[float]:
        return [math.nan if x[key] is None else float(x[key]) for x in readings]

    def by_name(key: str) -> dict[str, list[float]]:
        # an earlier part of a resumed run may have tuned other counts
        each = [{**line.get("fixed", {}), **line[key]} for line in readings]
        names = [name for name in _SYMBOLS if any(name in counts for counts in each)]
        return {name: [float(c.get(name, math.nan)) for c in each] for name in names}

    counts = by_name("counts")
    return TunerHistory(
        time_s=numbers("time_s"),
        counts=counts,
        kept=by_name("kept"),
        fixed=[n for n in counts if all(n not in line["counts"] for line in readings)],
        rates=numbers("rate"),
        baselines=numbers("baseline"),
        temperatures=numbers("temperature"),
        reverted=_reverted(readings),
        restarted_s=[float(x["time_s"]) for x in decisions if x["verdict"] == "restarted"],
    )


def plot_tuner(run_dir: Path, out: Path) -> None:
    """Draw the counts, the rate and the temperature of one run over time.

    Args:
        out: the picture, a .png, .pdf or .svg.

    Raises:
        RunFolderError: the run has no readings of a tuner.
        AclearnError: the picture cannot be written.
    """
    check_picture(out)
    write_picture(draw_tuner(read_tuner_history(run_dir), run_dir.resolve().name), out)


def draw_tuner(history: TunerHistory, title: str) -> Any:
    """The figure: one panel per count, one for the rate and one for the temperature."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MultipleLocator

    unit, unit_s = time_unit(history.time_s[-1])
    times = [t / unit_s for t in history.time_s]
    names = list(history.counts)
    figure = Figure(figsize=(9.0, 3.4 + 1.5 * len(names)), layout="constrained")
    heights = [*(1.0 for _ in names), 1.6, 0.8]
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)

    def points(axes: Any, values: Sequence[float], *, kept: bool) -> None:
        which = [i for i, reverted in enumerate(history.reverted) if reverted is not kept]
        style: dict[str, Any] = {"label": "kept"} if kept else _NOT_KEPT
        marker = "." if kept else "x"
        axes.plot([times[i] for i in which], [values[i] for i in which], marker, **style)

    for name, axes in zip(names, panels, strict=False):
        axes.step(times, history.kept[name], where="post", linewidth=1.8, label="kept")
        if name in history.fixed:
            axes.set_ylabel(f"${_SYMBOLS[name]}$\n{name}\n(fixed)")
        else:
            points(axes, history.counts[name], kept=False)
            axes.set_ylabel(f"${_SYMBOLS[name]}$\n{name}")
        shown = [n for n in (*history.kept[name], *history.counts[name]) if not math.isnan(n)]
        low, high = (min(shown), max(shown)) if shown else (0, 1)
        # whole numbers, also where the count stays the same
        axes.yaxis.set_major_locator(MultipleLocator(max(1, math.ceil((high - low) / 4))))
        axes.set_ylim(low - 0.5, high + 0.5)
    rate, temperature = panels[-2:]
    points(rate, history.rates, kept=True)
    points(rate, history.rates, kept=False)
    rate.plot(times, history.baselines, linewidth=1.4, label="estimate")
    rate.set_ylabel("rate per second")
    rate.set_ylim(bottom=0.0)
    temperature.step(times, history.temperatures, where="post", color="tab:purple")
    temperature.set_ylabel("temperature")
    temperature.set_ylim(bottom=0.0)
    temperature.set_xlabel(f"wall time ({unit})")
    for axes in panels:
        for at_s in history.restarted_s:
            axes.axvline(at_s / unit_s, **DASHED)
        draw_grid(axes)
    rate.legend(loc="lower right", ncols=3, frameon=False)
    figure.suptitle(f"{title}: counts that the tuner tried and kept")
    return figure


def _reverted(readings: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Whether each reading is of counts that were not kept, by the trial's last reading.

    A trial may have several readings, all but the last with the verdict "repeat".
    """
    reverted: list[bool] = []
    for i in reversed(range(len(readings))):
        line = readings[i]
        goes_on = i + 1 < len(readings) and readings[i + 1]["counts"] == line["counts"]
        if line["verdict"] == "repeat" and goes_on:
            reverted.append(reverted[-1])
        else:
            reverted.append(line["counts"] != line["kept"])
    return reverted[::-1]
