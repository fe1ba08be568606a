"""GA3C's figure of a run: the counts that the tuner tried, what it read, its temperature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aclearn.errors import RunFolderError
from aclearn.views.learning_curves import check_picture, time_unit, write_picture

_NOT_KEPT = "tried, not kept"
_SYMBOLS = {"predictors": "N_P", "trainers": "N_T", "actors": "N_A"}


@dataclass(frozen=True)
class TunerHistory:
    """What a tuner did, one entry for each reading, and for each trial that was given up.

    Attributes:
        counts: name → what was measured, also of a count that was not tuned; NaN while it is not
            known.
        kept: name → what was kept after it; as `counts`.
        fixed: names of the counts that were not tuned.
        rates: per second; NaN for a trial that was given up.
        baselines: estimate of what was kept, NaN before there was one.
        reverted: whether it read counts that were not kept in the end, or are not decided yet.
        restarted_s: when the search began anew.
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
    """The readings in a run's `tuner.jsonl`, also of a run that goes on.

    Raises:
        RunFolderError: it has none, or is not what a tuner wrote.
    """
    # Imported here for the same reason as in `read_curve`.
    from aclearn.runs import TUNER_FILE, read_metrics

    path = run_dir / TUNER_FILE
    if not run_dir.is_dir():
        raise RunFolderError(f"there is no run folder {run_dir}; expected runs/<name>")
    if not path.exists():
        raise RunFolderError(
            f"there is no {path}: the tuner of this run was off; start one with tuner.enabled=true"
        )
    lines = read_metrics(path)
    try:
        readings = [x for x in lines if x["rate"] is not None or x["verdict"] == "given up"]
        if all(line["rate"] is None for line in readings):
            raise RunFolderError(
                f"{path} has no reading yet: no window has ended (tuner.settle_s and tuner.every_s "
                "after the first learned step, once every actor is there)"
            )

        def numbers(key: str) -> list[float]:
            return [math.nan if x[key] is None else float(x[key]) for x in readings]

        def by_name(key: str) -> dict[str, list[float]]:
            # a run that was resumed may have had other counts tuned before
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
            restarted_s=[float(x["time_s"]) for x in lines if x["verdict"] == "restarted"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{path} has a line without a usable {error}; expected a file that aclearn wrote"
        ) from error


def plot_tuner(run_dir: Path, out: Path) -> None:
    """Draw the counts, the rate and the temperature of one run over time.

    Args:
        run_dir: the run's folder.
        out: the picture; its ending decides the format: .png, .pdf or .svg.

    Raises:
        RunFolderError: the run has no readings of a tuner.
        AclearnError: the picture cannot be written.
    """
    check_picture(out)
    write_picture(draw_tuner(read_tuner_history(run_dir), run_dir.resolve().name), out)


def draw_tuner(history: TunerHistory, title: str) -> Any:
    """The figure: one panel a count, one for the rate and one for the temperature."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    unit, unit_s = time_unit(history.time_s[-1])
    times = [t / unit_s for t in history.time_s]
    names = list(history.counts)
    figure = Figure(figsize=(9.0, 3.4 + 1.5 * len(names)), layout="constrained")
    heights = [*(1.0 for _ in names), 1.6, 0.8]
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    away = [i for i, reverted in enumerate(history.reverted) if reverted]
    stays = [i for i, reverted in enumerate(history.reverted) if not reverted]
    for name, axes in zip(names, panels, strict=False):
        axes.step(times, history.kept[name], where="post", linewidth=1.8, label="kept")
        if name in history.fixed:
            axes.set_ylabel(f"${_SYMBOLS[name]}$\n{name}\n(fixed)")
        else:
            _points(axes, times, history.counts[name], away, "x", _NOT_KEPT)
            axes.set_ylabel(f"${_SYMBOLS[name]}$\n{name}")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    rate, temperature = panels[-2:]
    _points(rate, times, history.rates, stays, ".", "kept")
    _points(rate, times, history.rates, away, "x", _NOT_KEPT)
    rate.plot(times, history.baselines, linewidth=1.4, label="estimate")
    rate.set_ylabel("rate per second")
    rate.set_ylim(bottom=0.0)
    temperature.step(times, history.temperatures, where="post", color="tab:purple")
    temperature.set_ylabel("temperature")
    temperature.set_ylim(bottom=0.0)
    temperature.set_xlabel(f"wall time ({unit})")
    for axes in panels:
        for at_s in history.restarted_s:
            axes.axvline(at_s / unit_s, color="0.35", linestyle="--", linewidth=1.0)
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    rate.legend(loc="lower right", ncols=3, frameon=False)
    figure.suptitle(f"{title}: what the tuner tried and kept")
    return figure


def _points(
    axes: Any,
    times: Sequence[float],
    values: Sequence[float],
    which: Sequence[int],
    marker: str,
    label: str,
) -> None:
    color = {"color": "tab:red"} if label == _NOT_KEPT else {}
    axes.plot([times[i] for i in which], [values[i] for i in which], marker, label=label, **color)


def _reverted(readings: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Whether each reading is of counts that were not kept: that is what the trial's last says.

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
