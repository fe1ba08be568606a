"""Small environments, each of which tests one thing that an algorithm's defaults must cope with.

They need gymnasium and NumPy alone, so that other libraries can be measured on them. `CASES` has
each with the return that counts as solved, and the most agent steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

Seen = Any


class _Small(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """Episodes of at most `most` steps; a subclass has `_begin` and `_take`.

    Args:
        scale: factor of the rewards.
    """

    most: ClassVar[int] = 32

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        super().reset(seed=seed)
        self._taken = 0
        return self._begin(), {}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        self._taken += 1
        seen, reward, ended = self._take(action)
        ended = bool(ended)
        return seen, float(reward * self._scale), ended, self._taken >= self.most and not ended, {}

    def _begin(self) -> Seen:
        """The first observation of an episode."""
        raise NotImplementedError

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        """Observation, reward and whether the episode terminates."""
        raise NotImplementedError


class Identity(_Small):
    """Do what you see: one of six choices."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space, self.action_space = spaces.Discrete(6), spaces.Discrete(6)

    def _begin(self) -> Seen:
        self._shown = int(self.np_random.integers(6))
        return self._shown

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        right = int(action) == self._shown
        return self._begin(), float(right), False


class IdentityNumbers(_Small):
    """Do what you see: two numbers, the bounds of the action being `bound`."""

    def __init__(self, bound: float = 1.0) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Box(-bound, bound, (2,), np.float32)
        self._bound = bound

    def _begin(self) -> Seen:
        self._shown = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self._shown

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        wrong = np.abs(np.asarray(action) / self._bound - self._shown).mean()
        return self._begin(), 1.0 - float(wrong), False


class IdentityChoices(_Small):
    """Do what you see: three choices at once, of 3, 4 and 5."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.MultiDiscrete([3, 4, 5])
        self.action_space = spaces.MultiDiscrete([3, 4, 5])

    def _begin(self) -> Seen:
        self._shown = self.np_random.integers(0, [3, 4, 5])
        return self._shown

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        right = float((np.asarray(action) == self._shown).mean())
        return self._begin(), right, False


class IdentityBits(_Small):
    """Do what you see: five switches."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space, self.action_space = spaces.MultiBinary(5), spaces.MultiBinary(5)

    def _begin(self) -> Seen:
        self._shown = self.np_random.integers(0, 2, 5).astype(np.int8)
        return self._shown

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        right = float((np.asarray(action) == self._shown).mean())
        return self._begin(), right, False


class SmallImage(_Small):
    """Which quarter of an 8 × 8 image in colour is bright?"""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)
        self.action_space = spaces.Discrete(4)

    def _begin(self) -> Seen:
        self._quarter = int(self.np_random.integers(4))
        image = self.np_random.integers(0, 100, (8, 8, 3)).astype(np.uint8)
        row, column = 4 * (self._quarter // 2), 4 * (self._quarter % 2)
        image[row : row + 4, column : column + 4] += 120
        return image

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        right = int(action) == self._quarter
        return self._begin(), float(right), False


class FloatImage(_Small):
    """A square is left or right of a mark in a 6 × 6 image of floats."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, (6, 6, 1), np.float32)
        self.action_space = spaces.Discrete(3)

    def _begin(self) -> Seen:
        image = np.zeros((6, 6, 1), np.float32)
        mark, square = self.np_random.integers(0, 6, 2)
        image[0, mark], image[self.np_random.integers(1, 6), square] = 1.0, 1.0
        self._right = int(np.sign(int(square) - int(mark))) + 1
        return image

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        right = int(action) == self._right
        return self._begin(), float(right), False


class Parts(_Small):
    """A Dict: a choice says which of two numbers, whose sign is the answer."""

    def __init__(self) -> None:
        super().__init__()
        number = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = spaces.Dict(
            {"which": spaces.Discrete(2), "first": number, "second": number}
        )
        self.action_space = spaces.Discrete(2)

    def _begin(self) -> Seen:
        which = int(self.np_random.integers(2))
        first, second = self.np_random.uniform(-1.0, 1.0, (2, 1)).astype(np.float32)
        self._right = bool((second if which else first)[0] > 0)
        return {"which": which, "first": first, "second": second}

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        right = bool(action) == self._right
        return self._begin(), float(right), False


class Sizes(_Small):
    """Observations of 0.001, 1 and 1000 around other means; the sign of each counts."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.MultiDiscrete([2, 2, 2])

    def _begin(self) -> Seen:
        x = self.np_random.uniform(-1.0, 1.0, 3)
        self._right = x > 0
        return (x * [1e-3, 1.0, 1e3] + [0.0, 5.0, -500.0]).astype(np.float32)

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        right = float((np.asarray(action) == self._right).mean())
        return self._begin(), right, False


class Bandit(_Small):
    """Ten arms of different means, whose rewards have a deviation of 1; nothing to see."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(10)

    def _begin(self) -> Seen:
        return np.zeros(1, np.float32)

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        mean = 1.0 if int(action) == 7 else 0.05 * int(action)
        return self._begin(), mean + float(self.np_random.normal()), False


class Delayed(_Small):
    """Ten choices by what is seen; the reward for all of them comes at the end."""

    most = 10

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(3)

    def _begin(self) -> Seen:
        self._right = 0
        return self._show()

    def _show(self) -> Seen:
        self._shown = int(self.np_random.integers(3))
        seen = np.zeros(4, np.float32)
        seen[self._shown], seen[3] = 1.0, self._taken / self.most
        return seen

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        self._right += int(action) == self._shown
        ended = self._taken == self.most
        return self._show(), float(self._right) if ended else 0.0, ended


class Line(_Small):
    """Lead a point to a place on a line; each step costs its distance."""

    most = 40

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(scale)
        self.observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.action_space = spaces.Discrete(3)

    def _begin(self) -> Seen:
        self._position, self._place = self.np_random.uniform(-1.0, 1.0, 2)
        return self._show()

    def _show(self) -> Seen:
        return np.array([self._position, self._place], np.float32)

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        self._position = min(1.5, max(-1.5, self._position + 0.1 * (int(action) - 1)))
        return self._show(), 1.0 - abs(self._position - self._place), False


class Point(_Small):
    """Push a mass in a plane to the middle by two forces."""

    most = 60

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(scale)
        self.observation_space = spaces.Box(-5.0, 5.0, (4,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _begin(self) -> Seen:
        self._at = self.np_random.uniform(-1.0, 1.0, 2)
        self._speed = np.zeros(2)
        return self._show()

    def _show(self) -> Seen:
        return np.concatenate([self._at, self._speed]).clip(-5.0, 5.0).astype(np.float32)

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        self._speed = 0.9 * self._speed + 0.05 * np.clip(np.asarray(action), -1.0, 1.0)
        self._at = (self._at + self._speed).clip(-3.0, 3.0)
        return self._show(), 1.0 - float(np.abs(self._at).sum()), False


class Catch(_Small):
    """A ball falls through a board of 10 × 5; a paddle of one field should be below it."""

    most = 9

    def __init__(self, image: bool = False) -> None:
        super().__init__()
        self._image = image
        self.observation_space = (
            spaces.Box(0, 255, (10, 5), np.uint8)
            if image
            else spaces.Box(0.0, 1.0, (50,), np.float32)
        )
        self.action_space = spaces.Discrete(3)

    def _begin(self) -> Seen:
        self._ball, self._paddle = int(self.np_random.integers(5)), 2
        return self._show()

    def _show(self) -> Seen:
        board = np.zeros((10, 5), np.uint8 if self._image else np.float32)
        board[self._taken, self._ball] = board[9, self._paddle] = 255 if self._image else 1
        return board if self._image else board.reshape(-1)

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        self._paddle = min(4, max(0, self._paddle + int(action) - 1))
        ended = self._taken == 9
        caught = 1.0 if self._ball == self._paddle else -1.0
        return self._show(), caught if ended else 0.0, ended


_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


class Grid(_Small):
    """From any field of 6 × 6 to a corner; each step costs 1, and may slip to a side."""

    most = 60

    def __init__(self, slip: float = 0.0) -> None:
        super().__init__()
        self.observation_space, self.action_space = spaces.Discrete(36), spaces.Discrete(4)
        self._slip = slip

    def _begin(self) -> Seen:
        self._field = int(self.np_random.integers(35))
        return self._field

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        turn = int(self.np_random.choice([-1, 1])) if self.np_random.random() < self._slip else 0
        down, right = _MOVES[(int(action) + turn) % 4]
        row, column = divmod(self._field, 6)
        row, column = min(5, max(0, row + down)), min(5, max(0, column + right))
        self._field = 6 * row + column
        return self._field, -1.0, self._field == 35


class Cliff(_Small):
    """The way along a cliff of 4 × 7, into which a step costs 20 and leads back to the start."""

    most = 100

    def __init__(self) -> None:
        super().__init__()
        self.observation_space, self.action_space = spaces.Discrete(28), spaces.Discrete(4)

    def _begin(self) -> Seen:
        self._row, self._column = 3, 0
        return self._show()

    def _show(self) -> Seen:
        return 7 * self._row + self._column

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        down, right = _MOVES[int(action)]
        self._row = min(3, max(0, self._row + down))
        self._column = min(6, max(0, self._column + right))
        if self._row == 3 and 0 < self._column < 6:
            return self._begin(), -20.0, False
        return self._show(), -1.0, (self._row, self._column) == (3, 6)


class Balance(_Small):
    """A pole on a cart, pushed left or right, for 500 steps (Barto, Sutton & Anderson 1983)."""

    most = 500

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = spaces.Discrete(2)

    def _begin(self) -> Seen:
        self._x, self._v, self._angle, self._turn = self.np_random.uniform(-0.05, 0.05, 4)
        return self._show()

    def _show(self) -> Seen:
        return np.array([self._x, self._v, self._angle, self._turn], np.float32)

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        force = 10.0 if int(action) == 1 else -10.0
        sine, cosine = math.sin(self._angle), math.cos(self._angle)
        push = (force + 0.05 * self._turn**2 * sine) / 1.1
        turning = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        pushing = push - 0.05 * turning * cosine / 1.1
        self._x += 0.02 * self._v
        self._v += 0.02 * pushing
        self._angle += 0.02 * self._turn
        self._turn += 0.02 * turning
        fallen = abs(self._x) > 2.4 or abs(self._angle) > 12 * math.pi / 180
        return self._show(), 1.0, fallen


class Recall(_Small):
    """The answer is shown in the first of four steps alone."""

    most = 4

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)

    def _begin(self) -> Seen:
        self._right = int(self.np_random.integers(2))
        return np.array([2.0 * self._right - 1.0, 0.0], np.float32)

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        ended = self._taken == self.most
        reward = (1.0 if int(action) == self._right else -1.0) if ended else 0.0
        return np.array([0.0, self._taken / self.most], np.float32), reward, ended


class DeepSea(_Small):
    """Ten rows down: right costs 0.01 / 10, and only ten times right gives 1."""

    most = 10

    def __init__(self) -> None:
        super().__init__()
        self.observation_space, self.action_space = spaces.Discrete(100), spaces.Discrete(2)

    def _begin(self) -> Seen:
        self._column = 0
        return 0

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        right = int(action) == 1
        self._column = min(9, self._column + 1) if right else max(0, self._column - 1)
        ended, reward = self._taken == self.most, -0.001 * right
        if ended and right and self._column == 9:
            reward += 1.0
        return 10 * min(9, self._taken) + self._column, reward, ended


class FarGoal(_Small):
    """A corridor of 20 fields: only its end gives 1."""

    most = 80

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def _begin(self) -> Seen:
        self._field = 0
        return self._show()

    def _show(self) -> Seen:
        return np.array([self._field / 20], np.float32)

    def _take(self, action: Any) -> tuple[Seen, float, bool]:
        self._field = max(0, self._field + (1 if int(action) == 1 else -1))
        arrived = self._field == 20
        return self._show(), float(arrived), arrived


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

    make: type[_Small]
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
