"""Fitness and hyper-parameters of a population over rounds, with lineage (Podracer, figure 7)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aclearn.views.learning_curves import check_picture, draw_grid, write_picture
from aclearn.views.population_panels import Panel, read_panels

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

    found = read_panels(folder)
    figure = NotebookFigure(figsize=(8.0, 1.4 + 2.2 * len(found)), layout="constrained")
    heights = [1.6, *(1.0 for _ in found[1:])]
    panels = figure.subplots(len(found), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for panel, axes in zip(found, panels, strict=True):
        _draw(axes, panel)
        draw_grid(axes)
    panels[0].set_ylabel("fitness: mean return of\nthe evaluator's episodes")
    panels[0].legend(frameon=False, loc="best")
    panels[-1].set_xlabel("round")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _draw(axes: Any, panel: Panel) -> None:
    if panel.log:
        axes.set_yscale("log")
    for lines, style in ((panel.stays, _STAYS), (panel.copies, _COPIES)):
        for n, ends in enumerate(lines):
            label = "copied" if lines is panel.copies and n == 0 else None
            axes.plot(*zip(*ends, strict=True), label=label, **style)
    rounds, heights = [at for at, _ in panel.points], [y for _, y in panel.points]
    axes.scatter(rounds, heights, s=9, color="0.35", zorder=3)
    if panel.ancestors:
        way = zip(*panel.ancestors, strict=True)
        axes.plot(*way, label="the best agent's ancestors", **_ANCESTORS)
    if panel.best:
        way = zip(*panel.best, strict=True)
        axes.step(*way, where="post", color="black", linewidth=1.0, label="best so far")
    if panel.dead:
        bottom = [axes.get_ylim()[0]] * len(panel.dead)
        axes.plot(panel.dead, bottom, "x", color="tab:red", label="dead", clip_on=False)
    if panel.key is not None:
        axes.set_ylabel(panel.key.replace(".", ".\n"))
