"""Tables and pictures of the atlas: interquartile means over seeds with their 95 % interval."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from aclearn.metrics.seed_statistics import estimate
from aclearn.views.learning_curves import write_picture

#: A training that went to its end.
_WHOLE: Final = "max_env_steps"
#: How far `auto` may be behind the best fixed correction, as a share of that one's gain.
_BAR: Final = 0.05
#: The least share of the way from random actions to the target that counts as learned.
_LEARNED: Final = 0.1
AUTO: Final = "auto"
#: In place of a compressor: the mean over them.
ALL: Final = "all"


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


def worse(by_correction: Mapping[str, Score | None]) -> tuple[str, list[str]] | None:
    """The best correction, and those whose interval lies below its own; None without any.

    A single training has no interval, so that it is neither.
    """
    there = {name: score for name, score in by_correction.items() if score is not None}
    if not there:
        return None
    best = max(there, key=lambda name: there[name].mean)
    if there[best].seeds == 1:
        return best, []
    below = [n for n, score in there.items() if score.seeds > 1 and score.high < there[best].low]
    return best, below


def differing(rows: Iterable[Row]) -> list[Place]:
    """Where the interval of some correction lies below that of the best one."""
    found = ((place, worse(by_correction)) for place, by_correction in scores(rows).items())
    return [place for place, than in found if than is not None and than[1]]


def behind(by_correction: Mapping[str, Score | None], scale: Scale) -> float | None:
    """How much less `auto` gained than the best fixed correction, as a share of its gain.

    None if one was not run, or if that one did not learn.
    """
    auto = by_correction.get(AUTO)
    fixed = [s.mean for name, s in by_correction.items() if name != AUTO and s is not None]
    if auto is None or not fixed or not _learned(max(fixed), scale):
        return None
    return (max(fixed) - auto.mean) / (max(fixed) - scale.floor)


def _learned(mean: float, scale: Scale) -> bool:
    return mean - scale.floor > _LEARNED * (scale.target - scale.floor)


def report(
    rows: Sequence[Row],
    tasks: Mapping[str, Scale],
    compressors: Iterable[str],
    corrections: Iterable[str],
    lags: Iterable[int],
) -> str:
    """A Markdown table a task: means, what differs beyond seeds, how far `auto` is behind."""
    corrections = tuple(corrections)
    found = scores([*rows, *_together(rows, corrections)])
    places = tuple(itertools.product((*compressors, ALL), lags))
    text, bars = [], []
    for task, scale in tasks.items():
        heads = ["compressor", "lag", *corrections, "beyond seeds", "auto behind the best"]
        text += [f"### {task}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for compressor, lag in places:
            there = found.get((task, compressor, lag), {})
            cells = [_words(there, correction) for correction in corrections]
            ends = [_differ(there, scale), _behind_words(there, scale)]
            text.append(f"| {' | '.join([compressor, str(lag), *cells, *ends])} |")
            if compressor != ALL:
                bars.append(behind(there, scale))
        text.append("")
    known = [less for less in bars if less is not None]
    within = sum(less <= _BAR for less in known)
    text.append(
        f"`auto` is at most {_BAR:.0%} behind the best fixed correction in {within} of "
        f"{len(known)} cells; {len(bars) - len(known)} of {len(bars)} were not run or not learned."
    )
    return "\n".join(text)


def _together(rows: Iterable[Row], corrections: Sequence[str]) -> list[Row]:
    """A row of `ALL` for each seed: the mean over the compressors with which all were trained.

    Trainings of one seed are alike, so that each compressor is no further sample.
    """
    groups: dict[tuple[str, str, int, int], list[Row]] = {}
    for row in rows:
        if row.mean_return is not None:
            groups.setdefault((row.task, row.compressor, row.lag, row.seed), []).append(row)
    whole = [each for each in groups.values() if {r.correction for r in each} >= {*corrections}]
    means: dict[Row, list[float]] = {}
    for row in itertools.chain(*whole):
        assert row.mean_return is not None  # by the condition above
        one = replace(row, compressor=ALL, mean_return=None)
        means.setdefault(one, []).append(row.mean_return)
    return [replace(row, mean_return=float(np.mean(values))) for row, values in means.items()]


def _words(by_correction: Mapping[str, Score | None], correction: str) -> str:
    if correction not in by_correction:
        return "not run"
    score = by_correction[correction]
    if score is None:
        return "none went to its end"
    interval = f" ({score.low:.4g} to {score.high:.4g})" if score.seeds > 1 else ""
    others = f", {score.others} failed" if score.others else ""
    return f"{score.mean:.4g}{interval}, {score.seeds}{others}"


def _differ(by_correction: Mapping[str, Score | None], scale: Scale) -> str:
    than = worse(by_correction)
    if than is None:
        return "-"
    best, below = than
    scored = [score for score in by_correction.values() if score is not None]
    if not _learned(max(score.mean for score in scored), scale):
        return "none learned"
    if min(score.seeds for score in scored) == 1:
        return "one seed"
    return f"{best} above {', '.join(below)}" if below else "no difference"


def _behind_words(by_correction: Mapping[str, Score | None], scale: Scale) -> str:
    less = behind(by_correction, scale)
    if less is None:
        return "-"
    than, auto = worse(by_correction), by_correction[AUTO]
    assert than is not None and auto is not None  # both were run
    seeds = "one seed" if auto.seeds == 1 else "beyond seeds" if AUTO in than[1] else "within seeds"
    return f"{less:.1%}{f' (over the bar, {seeds})' * (less > _BAR)}"


def write_between(page: Path, source: str, text: str) -> None:
    """Put `text` between the page's marks, "written by … from `source`" and "end".

    Raises:
        ValueError: the page lacks one of them.
    """
    begin, end = f"<!-- written by benchmarks/atlas.py from {source} -->", "<!-- end -->"
    before, begun, rest = page.read_text("utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"{page}: expected the lines {begin} and {end}, between which tables go")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", "utf-8")


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
            ink = "black" if gains[y, x] > 0.6 else "white"
            panel.text(x, y, f"{score.mean:.3g}", ha="center", va="center", color=ink, fontsize=8)
        panel.patch.set(hatch="///", edgecolor="0.8")
        image = panel.imshow(gains, vmin=0.0, vmax=1.0, cmap="viridis", aspect="auto")
        panel.set_title(task)
        panel.set_xticks(range(len(corrections)), corrections, rotation=45, ha="right")
        panel.set_yticks(range(len(places)), [f"{name}, lag {lag}" for name, lag in places])
    figure.colorbar(image, ax=list(panels), label="mean return: 0 random actions, 1 the target")
    write_picture(figure, out)
