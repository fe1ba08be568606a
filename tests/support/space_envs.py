"""Environments with other spaces than Box and Discrete, whose best return is known."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_STEPS = 8


class Match(gymnasium.Env[Any, Any]):
    """The observation is a choice of 3 and one of 2; whoever repeats them gets 1 for each."""

    best = 2.0 * _STEPS
    observation_space: Any = spaces.Box(0.0, 1.0, (5,), np.float32)
    action_space: Any = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        reward = self.reward(action)
        self.steps += 1
        return self._next(), reward, self.steps == _STEPS, False, {}

    def reward(self, action: Any) -> float:
        return float((action == self.wanted).sum())

    def _next(self) -> Any:
        self.wanted = self.np_random.integers([3, 2])
        return self.shown()

    def shown(self) -> Any:
        one_hot = np.zeros(5, np.float32)
        one_hot[[self.wanted[0], 3 + self.wanted[1]]] = 1.0
        return one_hot


class Switches(Match):
    """The same by two switches, of which the first two stand for the numbers 0 to 2."""

    action_space = spaces.MultiBinary(3)

    def reward(self, action: Any) -> float:
        return float(2 * action[0] + action[1] == self.wanted[0]) + (action[2] == self.wanted[1])


class Reach(Match):
    """The second part is a number to come near to, 1 or 3 of 0 to 4: half its distance is lost."""

    action_space = spaces.Dict(
        {"where": spaces.Box(0.0, 4.0, (1,), np.float32), "which": spaces.Discrete(3, start=5)}
    )

    def reward(self, action: Any) -> float:
        distance = abs(float(action["where"][0]) - (1.0 + 2.0 * self.wanted[1]))
        return float(action["which"] - 5 == self.wanted[0]) + 1.0 - distance / 2.0
