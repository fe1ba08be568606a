"""Small environments, each of which tests one thing that an algorithm's defaults must cope with.

They need gymnasium and NumPy alone, so that other libraries can be measured on them. `CASES` has
each with the return that counts as solved, and the most agent steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium
from sanity_signals import (
    Bandit,
    Delayed,
    FloatImage,
    Identity,
    IdentityBits,
    IdentityChoices,
    IdentityNumbers,
    Parts,
    Sizes,
    SmallEnv,
    SmallImage,
)
from sanity_worlds import Balance, Catch, Cliff, DeepSea, FarGoal, Grid, Line, Point, Recall


@dataclass(frozen=True)
class Case:
    """An environment with its bar.

    Attributes:
        make: class of the environment.
        solved: mean return of 100 episodes that counts as solved.
        steps: most agent steps.
        tests: what it tests.
        kwargs: of the class.
        needs: what an algorithm without it cannot be expected to solve; "" for nothing special.
    """

    make: type[SmallEnv]
    solved: float
    steps: int
    tests: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    needs: str = ""


CASES: dict[str, Case] = {
    "identity": Case(Identity, 30.0, 60_000, "a choice seen, a choice taken"),
    "identity_numbers": Case(IdentityNumbers, 25.0, 80_000, "numbers as actions"),
    "identity_wide": Case(
        IdentityNumbers, 25.0, 60_000, "actions with bounds of 50", {"bound": 50.0}
    ),
    "identity_choices": Case(IdentityChoices, 30.0, 60_000, "several choices at once"),
    "identity_bits": Case(IdentityBits, 30.0, 60_000, "switches"),
    "small_image": Case(SmallImage, 28.0, 60_000, "images of 8 × 8 × 3 bytes"),
    "float_image": Case(FloatImage, 26.0, 80_000, "images of floats"),
    "parts": Case(Parts, 28.0, 80_000, "a Dict of a choice and numbers"),
    "sizes": Case(Sizes, 28.0, 50_000, "observations of different sizes"),
    "bandit": Case(Bandit, 25.0, 50_000, "noisy rewards"),
    "delayed": Case(Delayed, 8.0, 100_000, "one reward for ten choices"),
    "line": Case(Line, 33.0, 50_000, "a way to a place"),
    "line_small": Case(Line, 0.033, 50_000, "rewards of 0.001", {"scale": 1e-3}),
    "line_large": Case(Line, 33_000.0, 50_000, "rewards of 1000", {"scale": 1e3}),
    "point": Case(Point, 40.0, 80_000, "forces as actions"),
    "point_small": Case(Point, 0.04, 80_000, "forces, rewards of 0.001", {"scale": 1e-3}),
    "catch": Case(Catch, 0.8, 80_000, "a board as numbers"),
    "catch_image": Case(Catch, 0.8, 80_000, "a board as an image of bytes", {"image": True}),
    "grid": Case(Grid, -7.0, 80_000, "36 fields, short ways"),
    "grid_slippery": Case(Grid, -10.0, 80_000, "a random course", {"slip": 0.3}),
    "cliff": Case(Cliff, -15.0, 80_000, "a risk that exploration meets"),
    "balance": Case(Balance, 400.0, 100_000, "long episodes that begin short"),
    "recall": Case(Recall, 0.9, 20_000, "what was seen before", needs="memory"),
    "deep_sea": Case(DeepSea, 0.9, 30_000, "a way that costs at first", needs="exploration"),
    "far_goal": Case(FarGoal, 0.9, 40_000, "a goal far away", needs="a sparse goal"),
}
"""Name → environment and bar."""


def make(name: str) -> gymnasium.Env[Any, Any]:
    """The environment of one case."""
    case = CASES[name]
    return case.make(**case.kwargs)
