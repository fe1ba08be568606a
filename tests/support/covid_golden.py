"""Sums over the 51 states of the COVID-19 economy, from another implementation of its equations."""

from __future__ import annotations

from typing import NamedTuple

#: The last days of the sums.
DAYS = (1, 100, 540)


class Case(NamedTuple):
    """A policy that stays, and what it leads to by the days of `DAYS`.

    Attributes:
        level: each state's action on every day; 0 keeps its level.
        subsidy: the planner's action on every day.
        deaths, unemployed: people on the day; None where it was not computed.
        state_rewards, planner_rewards: sums until the day, over the states.
    """

    name: str
    level: int
    subsidy: int
    deaths: tuple[float, ...]
    unemployed: tuple[float, ...] | None
    state_rewards: tuple[float, ...]
    planner_rewards: tuple[float, ...]


CASES = (
    Case(
        "kept",
        0,
        0,
        (3942.12, 179165.28, 1025544.43),
        (26294531.6, 34405409.8, 18933914.7),
        (44.5425, 3801.4077, 22011.0673),
        (0.87253, 72.40782, 437.98231),
    ),
    Case(
        "open",
        1,
        0,
        (3942.12, 1186765.87, 4662531.37),
        None,
        (49.5105, 3856.8117, 19378.4476),
        (0.9605, 57.40384, 369.77509),
    ),
    Case(
        "closed",
        10,
        20,
        (3942.12, 86873.69, 92962.33),
        None,
        (75.3068, 6667.879, 40032.4138),
        (0.74036, 44.79713, 371.08944),
    ),
)
