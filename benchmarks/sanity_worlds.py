"""Sanity environments in which an agent moves, and must plan, explore or remember."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from sanity_signals import Seen, SmallEnv


class Line(SmallEnv):
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


class Point(SmallEnv):
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


class Catch(SmallEnv):
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


class Grid(SmallEnv):
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


class Cliff(SmallEnv):
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


class Balance(SmallEnv):
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


class Recall(SmallEnv):
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


class DeepSea(SmallEnv):
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


class FarGoal(SmallEnv):
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
