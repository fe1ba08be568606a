"""Environments with other spaces than Box and Discrete, whose best return is known."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_STEPS = 8


class Match(gymnasium.Env[Any, Any]):
    """The observation is a choice of 3 and one of 2; each choice that is repeated gives 1."""

    best = 2.0 * _STEPS
    observation_space: Any = spaces.Box(0.0, 1.0, (5,), np.float32)
    action_space: Any = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        reward = self.reward(action)
        self.steps += 1
        return self._next(), reward, self.steps == _STEPS, False, self.info()

    def reward(self, action: Any) -> float:
        return float((action == self.wanted).sum())

    def info(self) -> dict[str, Any]:
        return {}

    def _next(self) -> Any:
        self.wanted = self.np_random.integers([3, 2])
        return self.shown()

    def shown(self) -> Any:
        one_hot = np.zeros(5, np.float32)
        one_hot[[self.wanted[0], 3 + self.wanted[1]]] = 1.0
        return one_hot


class Senses(Match):
    """Three choices, each shown by a leaf: a picture, a compass, a balance. `note` is text."""

    best = 3.0 * _STEPS
    observation_space = spaces.Dict(
        {
            "balance": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "compass": spaces.Discrete(2, start=4),
            "eyes": spaces.Dict({"left": spaces.Box(0, 255, (7, 7, 3), np.uint8)}),
            "note": spaces.Text(8),
        }
    )
    action_space = spaces.MultiDiscrete([3, 2, 2])

    def _next(self) -> Any:
        self.wanted = self.np_random.integers([3, 2, 2])
        return self.shown()

    def shown(self) -> Any:
        left = np.zeros((7, 7, 3), np.uint8)
        left[self.np_random.integers(7), 2 * self.wanted[0] + 1] = 10
        balance = np.array([1.0, -1.0] if self.wanted[2] else [-1.0, 1.0], np.float32)
        return {
            "balance": balance,
            "compass": int(4 + self.wanted[1]),
            "eyes": {"left": left},
            "note": "look",
        }


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


class Gates(Match):
    """Six gates, two of them open: the one that is shown gives 1, a closed one is an error."""

    best = 1.0 * _STEPS
    observation_space = spaces.Box(0.0, 1.0, (6,), np.float32)
    action_space = spaces.Discrete(6)

    def reward(self, action: Any) -> float:
        assert self.open[action], f"gate {action} is closed"
        return float(action == self.wanted)

    def _next(self) -> Any:
        self.wanted = int(self.np_random.integers(6))
        self.open = np.zeros(6, np.int8)
        self.open[[self.wanted, self.np_random.integers(6)]] = 1
        return np.eye(6, dtype=np.float32)[self.wanted]

    def info(self) -> dict[str, Any]:
        # at the end of an episode nothing is open
        return {"action_mask": self.open * (self.steps < _STEPS)}


class Wall(Gates):
    """`Gates`, the last of which is a wall: it is never open."""

    def _next(self) -> Any:
        self.wanted = int(self.np_random.integers(5))
        self.open = np.zeros(6, np.int8)
        self.open[[self.wanted, self.np_random.integers(5)]] = 1
        return np.eye(6, dtype=np.float32)[self.wanted]


class Locks(Match):
    """`Match` where one of the wrong choices of 3 is not allowed, said choice by choice."""

    def reward(self, action: Any) -> float:
        assert action[0] != self.closed, f"{action[0]} is closed"
        return super().reward(action)

    def _next(self) -> Any:
        shown = super()._next()
        self.closed = (self.wanted[0] + 1) % 3
        return shown

    def info(self) -> dict[str, Any]:
        return {"action_mask": (np.arange(3) != self.closed, np.ones(2, np.int8))}


class Scales(Match):
    """`Match` with numbers 1000 times larger or smaller than the others, and a constant."""

    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)

    def shown(self) -> Any:
        scaled = super().shown() * [1e-3, 1e3, 1.0, 1e3, 1e-3] + [0.0, 5e3, 0.0, -2e3, 1.0]
        return np.append(scaled, 7.0).astype(np.float32)


class LongOrShort(Match):
    """Episodes of 5 or of 155 steps, as likely, that the actions do not change; -1 a step."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        self.last = int(self.np_random.choice([5, 155]))
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._next(), -1.0, self.steps == self.last, False, self.info()


class Won(Match):
    """Tells at the end whether a coin fell well, gymnasium's statistics, and a word."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        self.total = 0.0
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self.total += reward
        if terminated:
            statistics = {"r": self.total, "l": self.steps}
            info = {"success": self.np_random.random() < 0.5, "episode": statistics, "word": "x"}
        return observation, reward, terminated, truncated, info
