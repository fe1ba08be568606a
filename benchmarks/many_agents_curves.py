"""Tables and pictures of the trainings of `many_agents_learning.py`."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def read(table: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def draw_lines(axes: Any, rows: Sequence[Mapping[str, str]], figure: str, colour: str) -> None:
    """A thin line for each seed and a thick one for their mean, where all have a point."""
    by_seed: dict[str, dict[int, tuple[float, float]]] = {}
    for row in rows:
        point = int(row["env_steps"]) / 1e6, float(row[figure])
        by_seed.setdefault(row["seed"], {})[int(row["percent"])] = point
    for points in by_seed.values():
        axes.plot(*zip(*points.values(), strict=True), color=colour, lw=0.6, alpha=0.6)
    shared = sorted(set.intersection(*(set(points) for points in by_seed.values())))
    mean = np.array([[points[at] for at in shared] for points in by_seed.values()]).mean(0)
    label = f"{rows[0].get('algorithm', '').upper()} ({len(by_seed)} seeds)".strip()
    axes.plot(mean[:, 0], mean[:, 1], color=colour, lw=2, label=label)


#: Titles of the columns of Tag's picture, which side learns, and the figure.
_PANELS = (
    ("runners fixed: share caught", "taggers", "caught"),
    ("taggers fixed: steps until caught", "runners", "time_in_game"),
    ("both learn: a tagger's return", "both", "tagger_return"),
    ("both learn: a runner's return", "both", "runner_return"),
)


def draw_tag(table: Path, picture: Path) -> None:
    """Both games, by which side learns."""
    from matplotlib.figure import Figure

    rows, envs = read(table), ("tag_gridworld", "tag_continuous")
    canvas = Figure((15, 6.4), layout="constrained")
    grid = canvas.subplots(len(envs), len(_PANELS))
    for env, line in zip(envs, grid, strict=True):
        for (title, learns, figure), axes in zip(_PANELS, line, strict=True):
            for algorithm, colour in (("a2c", "tab:blue"), ("ppo", "tab:orange")):
                these = (env, algorithm, learns)
                mine = [r for r in rows if (r["env"], r["algorithm"], r["learns"]) == these]
                if mine:
                    draw_lines(axes, mine, figure, colour)
                    axes.legend(fontsize=8)
            axes.set_title(f"{env}, {title}", fontsize=9)
            axes.set_xlabel("agent steps of those that learn, millions", fontsize=8)
            axes.grid(alpha=0.3)
            if figure == "caught":
                axes.axhline(0.8, color="grey", ls=":")
                axes.set_ylim(0, 1)
    canvas.savefig(picture, dpi=110)


def draw_covid(table: Path, picture: Path) -> None:
    """Indices and returns."""
    from matplotlib.figure import Figure

    rows = read(table)
    canvas = Figure((13, 3.2), layout="constrained")
    figures = {
        "health": "planner's health index, mean a day",
        "economy": "planner's economic index, mean a day",
        "planner_return": "planner's return",
        "state_return": "a state's return",
    }
    for axes, (figure, title) in zip(canvas.subplots(1, 4), figures.items(), strict=True):
        draw_lines(axes, rows, figure, "tab:green")
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("agent steps, millions", fontsize=8)
        axes.grid(alpha=0.3)
    canvas.savefig(picture, dpi=110)


#: Figures of the tables, and their decimals.
_SHOWN = {
    "caught": 2,
    "time_in_game": 1,
    "tagger_return": 1,
    "runner_return": 1,
    "health": 3,
    "economy": 3,
    "deaths": 0,
    "planner_return": 0,
    "state_return": 0,
}


def table_lines(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A table in Markdown: a row each training."""
    figures = [name for name in _SHOWN if name in rows[0]]
    yield "| training | seeds | agent steps | " + " | ".join(figures) + " |"
    yield "|---" * (3 + len(figures)) + "|"
    for name in dict.fromkeys(row["run"] for row in rows):
        mine = [row for row in rows if row["run"] == name]
        ends = {at: [r for r in mine if r["percent"] == at] for at in ("0", "100")}
        cells = []
        for figure in figures:
            before, after = ([float(r[figure]) for r in each] for each in ends.values())
            d = _SHOWN[figure]
            spread = f" ({min(after):.{d}f} to {max(after):.{d}f})" if len(after) > 1 else ""
            cells.append(f"{np.mean(before):.{d}f} → {np.mean(after):.{d}f}{spread}")
        steps = np.mean([int(row["env_steps"]) for row in ends["100"]])
        yield f"| {name} | {len(ends['100'])} | {steps / 1e6:.1f} M | " + " | ".join(cells) + " |"
