"""A game of MinAtar (Young & Tian 2019, arXiv 1903.03176): Breakout on ten by ten cells."""

from __future__ import annotations

from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from typing_extensions import override

_SIDE: Final = 10
_BOTTOM: Final = _SIDE - 1
#: Rows that begin full of bricks.
_WALL: Final = slice(1, 4)
_START_ROW, _START_PADDLE = 3, 4
#: Columns by action: stay, left, right.
_MOVES: Final = (0, -1, 1)


class Breakout(gym.Env):  # type: ignore[misc]  # gymnasium is untyped
    """Breakout of MinAtar: a paddle of one cell, a ball on diagonals, three rows of bricks.

    Each brick gives a reward of 1; a cleared wall is built again when the ball is next at the
    bottom. The episode ends when the ball gets past the paddle, and has no other end. An
    observation is uint8 `[4, 10, 10]` of 0 and 1: paddle, ball, where the ball was before, bricks.
    The actions are stay, left and right.

    Args:
        sticky: probability that the action before is repeated in place of the one given.
    """

    def __init__(self, sticky: float = 0.1) -> None:
        if not 0.0 <= sticky < 1.0:
            raise ValueError(f"sticky: expected a probability below 1, got {sticky}")
        self._sticky = sticky
        self.observation_space = spaces.Box(0, 1, (4, _SIDE, _SIDE), np.uint8)
        self.action_space = spaces.Discrete(len(_MOVES))
        self._bricks = np.zeros((_SIDE, _SIDE), np.uint8)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        from_left = bool(self.np_random.integers(2))
        self._ball = self._before = (_START_ROW, 0 if from_left else _BOTTOM)
        self._down, self._right = 1, 1 if from_left else -1
        self._paddle, self._action = _START_PADDLE, 0
        #: Whether the ball broke a brick and has touched bricks ever since: it breaks no other.
        self._in_wall = False
        self._bricks[:] = 0
        self._bricks[_WALL] = 1
        return self._observation(), {}

    @override
    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        if self.np_random.random() >= self._sticky:
            self._action = int(action)
        self._paddle = min(max(self._paddle + _MOVES[self._action], 0), _BOTTOM)
        reward, missed = self._move_ball()
        return self._observation(), reward, missed, False, {}

    def _move_ball(self) -> tuple[float, bool]:
        """The reward, and whether the paddle has missed the ball."""
        self._before = row, column = self._ball
        below, beside = row + self._down, column + self._right
        if not 0 <= beside <= _BOTTOM:
            beside, self._right = column, -self._right
        reward, missed, touches = 0.0, False, False
        if below < 0:
            below, self._down = row, -self._down
        elif self._bricks[below, beside]:
            touches = True
            if not self._in_wall:
                self._bricks[below, beside] = 0
                below, self._down = row, -self._down
                reward = 1.0
        elif below == _BOTTOM:
            if not self._bricks.any():
                self._bricks[_WALL] = 1
            if self._paddle == column:
                below, self._down = row, -self._down
            elif self._paddle == beside:  # hit at its edge: back where it came from
                below, self._down, self._right = row, -self._down, -self._right
            else:
                missed = True
        self._in_wall = touches
        self._ball = below, beside
        return reward, missed

    def _observation(self) -> NDArray[np.uint8]:
        shown = np.zeros((4, _SIDE, _SIDE), np.uint8)
        shown[0, _BOTTOM, self._paddle] = 1
        shown[1][self._ball] = 1
        shown[2][self._before] = 1
        shown[3] = self._bricks
        return shown
