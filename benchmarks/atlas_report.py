"""Tables and pictures of the atlas: interquartile means over seeds with their 95 % interval."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from aclearn.metrics.seed_statistics import estimate
from aclearn.views.learning_curves import write_picture

#: A training that went to its end.
_WHOLE: Final = "max_env_steps"
#: How far `auto` may be behind the best fixed correction, as a share of that one's gain.
_BAR: Final = 0.05
AUTO: Final = "auto"


class Scale(Protocol):
    """A task's mean returns of random actions and of one that counts as solved."""

    @property
    def floor(self) -> float:
        """Of random actions."""
        ...

    @property
    def target(self) -> float:
        """That counts as solved."""
        ...


@dataclass(frozen=True)
class Row:
    """A training; `mean_return` is None of one that did not go to its end."""

    task: str
    compressor: str
    correction: str
    lag: int
    seed: int
    ended: str
    mean_return: float | None

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Row:
        """The row of a CSV file."""
        whole = row["ended"] == _WHOLE
        return cls(
            row["task"],
            row["compressor"],
            row["correction"],
            int(row["lag"]),
            int(row["seed"]),
            row["ended"],
            float(row["mean_return"]) if whole else None,
        )

    @property
    def cell(self) -> tuple[str, str, str, int, int]:
        """What was trained."""
        return self.task, self.compressor, self.correction, self.lag, self.seed


#: Task, compressor and lag.
Place = tuple[str, str, int]


class Score(NamedTuple):
    """A cell's mean over seeds and its interval, whose ends are the mean of a single seed.

    Attributes:
        seeds: trainings that went to their end.
        others: trainings that did not.
    """

    mean: float
    low: float
    high: float
    seeds: int
    others: int


def scores(rows: Iterable[Row]) -> dict[Place, dict[str, Score | None]]:
    """Place → correction → its score; None where no training went to its end."""
    found: dict[Place, dict[str, Score | None]] = {}
    key = lambda row: (row.task, row.compressor, row.lag, row.correction)  # noqa: E731
    for (task, compressor, lag, correction), group in itertools.groupby(sorted(rows, key=key), key):
        trained = list(group)
        values = [row.mean_return for row in trained if row.mean_return is not None]
        place = found.setdefault((task, compressor, lag), {})
        place[correction] = None
        if values:
            of = estimate(values)
            mean = float(of.value)
            low, high = (mean if end is None else float(end) for end in (of.low, of.high))
            others = len(trained) - len(values)
            place[correction] = Score(mean, low, high, len(values), others)
    return found


def differing(rows: Iterable[Row]) -> list[Place]:
    """Where the interval of some correction lies below that of another one."""
    places = []
    for place, by_correction in scores(rows).items():
        there = [score for score in by_correction.values() if score is not None]
        if there and min(s.high for s in there) < max(s.low for s in there):
            places.append(place)
    return places


def behind(by_correction: Mapping[str, Score | None], floor: float) -> float | None:
    """How much less `auto` gained than the best fixed correction; None if one was not run."""
    auto = by_correction.get(AUTO)
    fixed = [s.mean for name, s in by_correction.items() if name != AUTO and s is not None]
    if auto is None or not fixed or max(fixed) <= floor:
        return None
    return (max(fixed) - auto.mean) / (max(fixed) - floor)


def report(
    rows: Sequence[Row],
    tasks: Mapping[str, Scale],
    compressors: Iterable[str],
    corrections: Iterable[str],
    lags: Iterable[int],
    *,
    missing: Mapping[str, str] | None = None,
) -> str:
    """A Markdown table for each task, and how far `auto` is behind.

    Args:
        missing: task that cannot be trained → why.
    """
    found, corrections = scores(rows), tuple(corrections)
    places = tuple(itertools.product(compressors, lags))
    text = []
    for task, scale in tasks.items():
        heads = ["compressor", "lag", *corrections, "auto behind the best"]
        text += [f"## {task}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for compressor, lag in places:
            there = found.get((task, compressor, lag), {})
            less = behind(there, scale.floor)
            shown = "-" if less is None else f"{less:.1%}{' (over the bar)' * (less > _BAR)}"
            cells = [_words(there, correction) for correction in corrections]
            text.append(f"| {' | '.join([compressor, str(lag), *cells, shown])} |")
        text.append("")
    for task, why in (missing or {}).items():
        text += [f"## {task}", "", f"Not run: {why}.", ""]
    return "\n".join(text)


def _words(by_correction: Mapping[str, Score | None], correction: str) -> str:
    if correction not in by_correction:
        return "not run"
    score = by_correction[correction]
    if score is None:
        return "none went to its end"
    interval = f" ({score.low:.4g} to {score.high:.4g})" if score.seeds > 1 else ""
    others = f", {score.others} cut or failed" if score.others else ""
    return f"{score.mean:.4g}{interval}, {score.seeds}{others}"


def picture(
    rows: Sequence[Row],
    tasks: Mapping[str, Scale],
    compressors: Iterable[str],
    corrections: Iterable[str],
    lags: Iterable[int],
    *,
    out: Path,
) -> None:
    """Draw a panel for each task: a row a compressor and lag, a column a correction.

    The colour goes from random actions to the target. What was not run is hatched.
    """
    from aclearn.views.notebook_figure import NotebookFigure

    found, corrections = scores(rows), tuple(corrections)
    places = tuple(itertools.product(compressors, lags))
    size = (len(tasks) * (1.5 + 0.9 * len(corrections)), 1.5 + 0.4 * len(places))
    figure = NotebookFigure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    image: Any = None
    for panel, (task, scale) in zip(panels, tasks.items(), strict=True):
        gains = np.full((len(places), len(corrections)), np.nan)
        for (y, place), (x, name) in itertools.product(enumerate(places), enumerate(corrections)):
            score = found.get((task, *place), {}).get(name)
            if score is None:
                panel.text(x, y, "not run", ha="center", va="center", fontsize=7)
                continue
            gains[y, x] = (score.mean - scale.floor) / (scale.target - scale.floor)
            panel.text(x, y, f"{score.mean:.3g}", ha="center", va="center", color="w", fontsize=8)
        panel.patch.set(hatch="///", edgecolor="0.8")
        image = panel.imshow(gains, vmin=0.0, vmax=1.0, cmap="viridis", aspect="auto")
        panel.set_title(task)
        panel.set_xticks(range(len(corrections)), corrections, rotation=45, ha="right")
        panel.set_yticks(range(len(places)), [f"{name}, lag {lag}" for name, lag in places])
    figure.colorbar(image, ax=list(panels), label="mean return: 0 random actions, 1 the target")
    write_picture(figure, out)
