"""GA3C's figure of a run: the counts that the tuner tried, and the rate that it read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aclearn.errors import AclearnError, RunFolderError
from aclearn.monitoring.plot import PICTURE_FORMATS, time_unit

_SYMBOLS = {"predictors": "N_P", "trainers": "N_T", "actors": "N_A"}


@dataclass(frozen=True)
class TunerHistory:
    """What a tuner did, one entry for each reading.

    Attributes:
        counts: name → what was measured.
        kept: name → what was kept after it; a difference is an excursion that was rejected, or one
            that is not decided yet.
        rates: per second.
        baselines: estimate of what was kept, None before there was one.
        thawed_s: when the search began anew.
    """

    time_s: list[float]
    counts: dict[str, list[int]]
    kept: dict[str, list[int]]
    rates: list[float]
    baselines: list[float | None]
    thawed_s: list[float]


def read_tuner_history(run_dir: Path) -> TunerHistory:
    """The readings in a run's `tuner.jsonl`, also of a run that goes on.

    Raises:
        RunFolderError: it has none, or is not what a tuner wrote.
    """
    # Imported here for the same reason as in `plot`.
    from aclearn.monitoring.tuner_file import TUNER_FILE, read_tuner_log

    lines = read_tuner_log(run_dir)
    try:
        readings = [line for line in lines if line["rate"] is not None]
        if not readings:
            raise RunFolderError(
                f"{run_dir / TUNER_FILE} has no reading yet: no window has ended "
                "(tuner.settle_s and tuner.every_s after the first learned step)"
            )
        names = [name for name in _SYMBOLS if name in readings[0]["counts"]]
        return TunerHistory(
            time_s=[float(line["time_s"]) for line in readings],
            counts={n: [int(line["counts"][n]) for line in readings] for n in names},
            kept={n: [int(line["kept"][n]) for line in readings] for n in names},
            rates=[float(line["rate"]) for line in readings],
            baselines=[None if (b := line["baseline"]) is None else float(b) for line in readings],
            thawed_s=[float(line["time_s"]) for line in lines if line["verdict"] == "thawed"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{run_dir / TUNER_FILE} has a line without a usable {error}; expected a file that "
            "aclearn wrote"
        ) from error


def plot_tuner(run_dir: Path, out: Path) -> None:
    """Draw the counts and the rate of one run over time.

    Args:
        run_dir: the run's folder.
        out: the picture; its ending decides the format: .png, .pdf or .svg.

    Raises:
        RunFolderError: the run has no readings of a tuner.
        AclearnError: the picture cannot be written.
    """
    if out.suffix.lower() not in PICTURE_FORMATS:
        raise AclearnError(
            f"{out}: expected a name that ends in one of {', '.join(PICTURE_FORMATS)} for the "
            "picture"
        )
    figure = draw_tuner(read_tuner_history(run_dir), run_dir.resolve().name)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=150)
    except OSError as error:
        raise AclearnError(f"the picture {out} cannot be written ({error.strerror})") from error


def draw_tuner(history: TunerHistory, title: str) -> Any:
    """The figure, one panel a count and one for the rate."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    unit, unit_s = time_unit(history.time_s[-1])
    times = [t / unit_s for t in history.time_s]
    names = list(history.counts)
    figure = Figure(figsize=(9.0, 2.4 + 1.5 * len(names)), layout="constrained")
    heights = [*(1.0 for _ in names), 1.6]
    panels = figure.subplots(len(names) + 1, 1, sharex=True, height_ratios=heights)
    away = _excursions(history)
    for name, axes in zip(names, panels, strict=False):
        axes.step(times, history.kept[name], where="post", linewidth=1.8, label="kept")
        tried = [history.counts[name][i] for i in away]
        axes.plot([times[i] for i in away], tried, "x", color="tab:red", label="tried, reverted")
        axes.set_ylabel(f"${_SYMBOLS[name]}$\n{name}")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    rate = panels[-1]
    stays = [i for i in range(len(times)) if i not in set(away)]
    rate.plot([times[i] for i in stays], [history.rates[i] for i in stays], ".", label="kept")
    rate.plot(
        [times[i] for i in away],
        [history.rates[i] for i in away],
        "x",
        color="tab:red",
        label="tried, reverted",
    )
    known = [(t, b) for t, b in zip(times, history.baselines, strict=True) if b is not None]
    rate.plot([t for t, _ in known], [b for _, b in known], linewidth=1.4, label="estimate")
    rate.set_ylabel("rate per second")
    rate.set_ylim(bottom=0.0)
    rate.set_xlabel(f"wall time ({unit})")
    for axes in panels:
        for at_s in history.thawed_s:
            axes.axvline(at_s / unit_s, color="0.35", linestyle="--", linewidth=1.0)
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    rate.legend(loc="lower right", ncols=3, frameon=False)
    figure.suptitle(f"{title}: what the tuner tried and kept")
    return figure


def _excursions(history: TunerHistory) -> Sequence[int]:
    """Readings of counts that were not kept afterwards."""
    return [
        i
        for i in range(len(history.time_s))
        if any(history.counts[name][i] != history.kept[name][i] for name in history.counts)
    ]
