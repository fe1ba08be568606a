"""Table and picture of the board: medians over the seeds of a quiet machine."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from aclearn.views.learning_curves import write_picture

#: Largest share of the cores that others may use while a row of the table is taken.
_QUIET: Final = 0.05
#: What is between them in a page is written by `write_table`.
BEGIN: Final = "<!-- written by benchmarks/board.py --table -->"
END: Final = "<!-- end -->"


class Scale(Protocol):
    """A task."""

    @property
    def target(self) -> float:
        """Mean return that is to be reached."""
        ...


@dataclass(frozen=True)
class Row:
    """A training; figures until its target, or until it ended without it."""

    task: str
    library: str
    seed: int
    ended: str
    steps: int
    core_s: float
    wall_s: float
    mean: float | None
    others: float

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Row:
        """The row of a CSV file."""
        return cls(
            *(row["task"], row["library"], int(row["seed"]), row["ended"], int(row["steps"])),
            *(float(row["core_s"]), float(row["wall_s"])),
            float(row["mean"]) if row["mean"] else None,
            float(row["others"]),
        )

    @property
    def cell(self) -> tuple[str, str, int]:
        """What was trained."""
        return self.task, self.library, self.seed


class Score(NamedTuple):
    """Medians over seeds; infinite where most did not reach the target.

    Attributes:
        lost_minutes: of the longest training that did not.
    """

    core_minutes: float
    wall_s: float
    steps: float
    seeds: int
    reached: int
    lost_minutes: float


def counts(row: Row) -> bool:
    """Whether other programs left the cores to the training, and it did not fail."""
    return row.others < _QUIET and row.ended != "failed"


def scores(rows: Iterable[Row]) -> dict[tuple[str, str], Score]:
    """Task and library → its medians over the rows that count."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in filter(counts, rows):
        found.setdefault((row.task, row.library), []).append(row)
    return {place: _score(list(each)) for place, each in found.items()}


def _score(rows: Sequence[Row]) -> Score:
    reached = [row for row in rows if row.ended == "reached"]
    not_reached = [row for row in rows if row.ended != "reached"]
    lost = [math.inf] * len(not_reached)
    return Score(
        statistics.median_high([*(row.core_s / 60.0 for row in reached), *lost]),
        statistics.median_high([*(row.wall_s for row in reached), *lost]),
        statistics.median_high([*(float(row.steps) for row in reached), *lost]),
        len(rows),
        len(reached),
        max((row.wall_s / 60.0 for row in not_reached), default=0.0),
    )


def table(
    rows: Sequence[Row],
    tasks: Mapping[str, Scale],
    libraries: Sequence[str],
    not_run: Mapping[tuple[str, str], str],
) -> str:
    """A Markdown table: a row a task; core-minutes (the fewest in bold) / seconds / steps (seeds).

    Args:
        not_run: task and library → why it cannot be trained; a task of "" stands for all.
    """
    found = scores(rows)
    heads = ("task, target", *map(_name, libraries))
    text = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for task, scale in tasks.items():
        there = {library: found.get((task, library)) for library in libraries}
        best = min((s.core_minutes for s in there.values() if s), default=math.inf)
        cells = [
            _cell(score, best)
            if score
            else not_run.get((task, library)) or not_run.get(("", library)) or "not run"
            for library, score in there.items()
        ]
        text.append(f"| {' | '.join([f'{task}, {scale.target:g}', *cells])} |")
    return "\n".join(text) + "\n"


def write_table(text: str, page: Path) -> None:
    """Put a table in place of the one between the marks of a page.

    Raises:
        ValueError: the page does not have both marks.
    """
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no table between {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", "utf-8")


def _cell(score: Score, best: float) -> str:
    seeds = f"{score.reached} of {score.seeds}" if score.reached < score.seeds else str(score.seeds)
    if math.isinf(score.core_minutes):
        return f"not reached in {score.lost_minutes:.1f} min ({seeds})"
    minutes = f"{score.core_minutes:.2f}"
    shown = f"**{minutes}**" if score.core_minutes == best else minutes
    return f"{shown} / {score.wall_s:.0f} / {score.steps / 1000:.0f} ({seeds})"


def _name(library: str) -> str:
    return library.replace("_", " ")


def picture(rows: Sequence[Row], tasks: Iterable[str], libraries: Sequence[str], out: Path) -> None:
    """Draw core-minutes to the target, a panel for each task that one reached; a dot a seed."""
    from aclearn.views.notebook_figure import NotebookFigure

    counted, found = [*filter(counts, rows)], scores(rows)
    shown = [task for task in tasks if any(s.reached for (t, _), s in found.items() if t == task)]
    columns = min(3, max(1, len(shown)))
    lines = max(1, math.ceil(len(shown) / columns))
    figure = NotebookFigure(figsize=(3.5 * columns, 2.8 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).flat
    for panel, task in itertools.zip_longest(panels, shown):
        if task is None:
            panel.axis("off")
            continue
        those = [library for library in libraries if (task, library) in found]
        for y, library in enumerate(those):
            minutes = found[task, library].core_minutes
            dots = [
                row.core_s / 60.0
                for row in counted
                if (row.task, row.library, row.ended) == (task, library, "reached")
            ]
            if math.isfinite(minutes):
                panel.barh(y, minutes, color=f"C{libraries.index(library)}")
                panel.text(max(dots), y, f"  {minutes:.2g}", va="center", fontsize=8)
            else:
                words = f"  not reached, but by {len(dots)}" if dots else "  not reached"
                panel.text(0.0, y, words, va="center", fontsize=8)
            panel.plot(dots, [y] * len(dots), "k.", markersize=4)
        panel.set_yticks(range(len(those)), [*map(_name, those)])
        panel.set_ylim(len(those) - 0.4, -0.6)
        panel.set_xlim(0.0, 1.25 * panel.get_xlim()[1])
        panel.set(title=task, xlabel="core-minutes to the target")
    write_picture(figure, out)
