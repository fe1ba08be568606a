"""CartPole that fails where an evaluator plays it, and elsewhere does not."""

from __future__ import annotations

import time
from typing import Any

from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class FailingCartPole(CartPoleEnv):
    """Fails in each step from `after` on, of all that were made, unless `how` is empty."""

    steps = 0

    def __init__(self, how: str = "", after: int = 0) -> None:
        super().__init__()
        self._how, self._after = how, after

    def step(self, action: Any) -> Any:
        cls = type(self)
        if self._how:
            cls.steps += 1
            if cls.steps > self._after:
                self._fail()
        return super().step(action)

    def _fail(self) -> None:
        if self._how == "raises":
            raise OSError("no licence for a second window")
        time.sleep(1000.0)


class Short(CartPoleEnv):
    """Every episode has five steps."""

    def reset(self, **options: Any) -> Any:
        self._left = 5
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        shown, _, _, _, info = super().step(action)
        self._left -= 1
        return shown, 1.0, self._left == 0, False, info
