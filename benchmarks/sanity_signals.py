"""Sanity environments without a place: what is seen decides what to do, at once or after a wait."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from typing_extensions import override

Seen = Any


class SmallEnv(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """Episodes of at most `most` steps; a subclass has `_begin` and `_take`.

    Args:
        scale: factor of the rewards.
    """

    most: ClassVar[int] = 32

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        super().reset(seed=seed)
        self._taken = 0
        return self._begin(), {}

    @override
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


class Identity(SmallEnv):
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


class IdentityNumbers(SmallEnv):
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


class IdentityChoices(SmallEnv):
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


class IdentityBits(SmallEnv):
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


class SmallImage(SmallEnv):
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


class FloatImage(SmallEnv):
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


class Parts(SmallEnv):
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


class Sizes(SmallEnv):
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


class Bandit(SmallEnv):
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


class Delayed(SmallEnv):
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
