"""Fitness and hyper-parameters of a population over rounds, as lines to draw. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aclearn.errors import RunFolderError
from aclearn.population import Lineage, Member
from aclearn.population.file import read_lineage

#: (round, height).
Point = tuple[int, float]


@dataclass(frozen=True)
class Panel:
    """One figure of all members over the rounds.

    Attributes:
        key: a hyper-parameter; None: the fitness.
        log: whether its scale is logarithmic.
        points: of each member in each round.
        stays: from a member's point to its next one.
        copies: from a member's point to that of the member which copied it.
        ancestors: the way of the best agent's weights, or hyper-parameters, since round 1.
        best: the best fitness so far in each round; empty of a hyper-parameter.
        dead: rounds in which a member died, one for each; empty of a hyper-parameter.
    """

    key: str | None
    log: bool
    points: list[Point]
    stays: list[tuple[Point, Point]]
    copies: list[tuple[Point, Point]]
    ancestors: list[Point]
    best: list[Point]
    dead: list[int]


def read_panels(folder: Path) -> list[Panel]:
    """The panels of a population, running or over: of its fitness, then of each hyper-parameter.

    Raises:
        RunFolderError: it is no population, or no round of it is over.
    """
    lineage = read_lineage(folder)
    over = tuple(each for each in lineage.rounds if not each.waiting)
    if not over:
        raise RunFolderError(f"no round of the population {folder} is over yet; wait for the first")
    lineage = Lineage(rounds=over, best=lineage.best, time_s=lineage.time_s)
    keys = sorted({key for member in over[0].members for key in member.values})
    return [_panel(lineage, None), *(_panel(lineage, key) for key in keys)]


def _panel(lineage: Lineage, key: str | None) -> Panel:
    height = _fitness if key is None else partial(_value, key)
    points = [
        (each.number, y)
        for each in lineage.rounds
        for member in each.members
        if (y := height(member)) is not None
    ]
    heights = [y for _, y in points]
    stays, copies = _joined(lineage, height, values=key is not None)
    dead = [each.number for each in lineage.rounds for member in each.members if member.is_dead]
    return Panel(
        key=key,
        log=key is not None and min(heights) > 0 and max(heights) >= 10 * min(heights),
        points=points,
        stays=stays,
        copies=copies,
        ancestors=_ancestors(lineage, height, values=key is not None),
        best=_best_so_far(lineage) if key is None else [],
        dead=dead if key is None else [],
    )


def _fitness(member: Member) -> float | None:
    return member.fitness


def _value(key: str, member: Member) -> float | None:
    return member.values.get(key)


def _parent(member: Member, *, values: bool) -> int:
    """Whose hyper-parameters, or weights, it began with."""
    return member.values_from if values else member.weights_from


def _joined(
    lineage: Lineage, height: Callable[[Member], float | None], *, values: bool
) -> tuple[list[tuple[Point, Point]], list[tuple[Point, Point]]]:
    stays, copies = list[tuple[Point, Point]](), list[tuple[Point, Point]]()
    for before, after in zip(lineage.rounds, lineage.rounds[1:], strict=False):
        for member in after.members:
            parent = _parent(member, values=values)
            start, end = height(before.members[parent]), height(member)
            if start is not None and end is not None:
                lines = stays if parent == member.number else copies
                lines.append(((before.number, start), (after.number, end)))
    return stays, copies


def _ancestors(
    lineage: Lineage, height: Callable[[Member], float | None], *, values: bool
) -> list[Point]:
    if lineage.best is None:
        return []
    way, number = list[Point](), lineage.best.member
    for each in reversed(lineage.rounds[: lineage.best.round]):
        if (y := height(each.members[number])) is not None:
            way.append((each.number, y))
        number = _parent(each.members[number], values=values)
    return way[::-1]


def _best_so_far(lineage: Lineage) -> list[Point]:
    best, found = float("-inf"), list[Point]()
    for each in lineage.rounds:
        known = [member.fitness for member in each.ranked if member.fitness is not None]
        best = max([best, *known])
        if best > float("-inf"):
            found.append((each.number, best))
    return found
