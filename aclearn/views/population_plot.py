"""Fitness and hyper-parameters of a population over rounds, with lineage (Podracer, figure 7)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aclearn.errors import RunFolderError
from aclearn.population import Lineage, Member
from aclearn.population.file import read_lineage
from aclearn.views.learning_curves import check_picture, draw_grid, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STAYS: Final = {"color": "0.75", "linewidth": 0.8, "zorder": 1}
_COPIES: Final = {"color": "tab:orange", "linewidth": 0.9, "alpha": 0.8, "zorder": 2}
_ANCESTORS: Final = {"color": "tab:blue", "linewidth": 2.0, "zorder": 4}


def plot_population(folder: Path, out: Path) -> None:
    """Draw a population, running or over, into a picture, as `figure_of_population` does.

    Args:
        out: the picture, a .png, .pdf or .svg; an existing one is replaced.

    Raises:
        RunFolderError: it is no population, or no round of it is over.
        AclearnError: the picture cannot be written.
    """
    check_picture(out)
    write_picture(figure_of_population(folder), out)


def figure_of_population(folder: Path) -> Figure:
    """A panel for the fitness, and one for each hyper-parameter, over the rounds.

    Grey lines join a member's rounds, orange ones a copy and its parent. The blue line is the way
    of the best agent's weights, or hyper-parameters, from the first round on. Dead members have a
    cross at the bottom. The steps are the best fitness so far.

    Raises:
        RunFolderError: it is no population, or no round of it is over.
    """
    from matplotlib.ticker import MaxNLocator

    from aclearn.views.notebook_figure import NotebookFigure

    lineage = read_lineage(folder)
    over = [each for each in lineage.rounds if not each.waiting]
    if not over:
        raise RunFolderError(f"no round of the population {folder} is over yet; wait for the first")
    keys = sorted({key for member in over[0].members for key in member.values})
    figure = NotebookFigure(figsize=(8.0, 3.6 + 2.2 * len(keys)), layout="constrained")
    heights = [1.6, *(1.0 for _ in keys)]
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
    top, *others = panels[:, 0]
    lineage = Lineage(rounds=tuple(over), best=lineage.best, time_s=lineage.time_s)
    _draw(top, lineage, lambda member: member.fitness)
    best = _best_so_far(lineage)
    numbers = [each.number for each in over]
    top.step(numbers, best, where="post", color="black", linewidth=1.0, label="best so far")
    dead = [each.number for each in over for member in each.members if member.is_dead]
    if dead:
        bottom = top.get_ylim()[0]
        top.plot(dead, [bottom] * len(dead), "x", color="tab:red", label="dead", clip_on=False)
    top.set_ylabel("fitness: mean return of\nthe evaluator's episodes")
    top.legend(frameon=False, loc="best")
    for key, panel in zip(keys, others, strict=True):
        values = [member.values[key] for each in over for member in each.members if member.values]
        if min(values) > 0 and max(values) >= 10 * min(values):
            panel.set_yscale("log")
        _draw(panel, lineage, partial(_value, key), values=True)
        panel.set_ylabel(key.replace(".", ".\n"))
    for panel in (top, *others):
        draw_grid(panel)
    panels[-1, 0].set_xlabel("round")
    panels[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _value(key: str, member: Member) -> float | None:
    return member.values.get(key)


def _draw(
    panel: Any,
    lineage: Lineage,
    height: Callable[[Member], float | None],
    *,
    values: bool = False,
) -> None:
    """Draw a figure of each member, and who has it from whom.

    Args:
        values: whether it is inherited with the hyper-parameters, not with the weights.
    """

    def parent(member: Member) -> int:
        return member.values_from if values else member.weights_from

    labelled: set[str] = set()
    for before, after in zip(lineage.rounds, lineage.rounds[1:], strict=False):
        for member in after.members:
            ends = height(before.members[parent(member)]), height(member)
            copied = parent(member) != member.number
            if None not in ends:
                label = "copied" if copied and "copied" not in labelled else None
                labelled |= {label} if label else set()
                style = _COPIES if copied else _STAYS
                panel.plot([before.number, after.number], ends, label=label, **style)
    points = [
        (each.number, height(member), member)
        for each in lineage.rounds
        for member in each.members
        if height(member) is not None
    ]
    panel.scatter([at for at, *_ in points], [y for _, y, _ in points], s=9, color="0.35", zorder=3)
    if lineage.best is not None:
        way, number = list[tuple[int, float | None]](), lineage.best.member
        for each in reversed(lineage.rounds[: lineage.best.round]):
            way.append((each.number, height(each.members[number])))
            number = parent(each.members[number])
        known = [(at, y) for at, y in reversed(way) if y is not None]
        panel.plot(*zip(*known, strict=True), label="the best agent's ancestors", **_ANCESTORS)


def _best_so_far(lineage: Lineage) -> list[float]:
    best, found = float("-inf"), []
    for each in lineage.rounds:
        best = max(
            [best, *(member.fitness for member in each.ranked if member.fitness is not None)]
        )
        found.append(best if best > float("-inf") else float("nan"))
    return found
