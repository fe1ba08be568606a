"""Two environments that a policy without memory cannot solve."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from typing_extensions import override


def cartpole_without_velocities(**kwargs: Any) -> gym.Env:
    """CartPole-v1 that shows the cart's position and the pole's angle, but no velocity."""
    env = gym.make("CartPole-v1", **kwargs)
    box = env.observation_space
    assert isinstance(box, spaces.Box)
    shown = spaces.Box(box.low[::2], box.high[::2], dtype=np.float32)
    return gym.wrappers.TransformObservation(env, lambda observation: observation[::2], shown)


class Recall(gym.Env):  # type: ignore[misc]  # gymnasium is untyped
    """Name at the end of an episode the cue that its first observation showed.

    An episode has `delay` steps and then the question, whose answer gives a reward of 1 or -1;
    other rewards are 0. An observation is the cue (one number each, all 0 after the first), a
    number drawn from [-1, 1], which means nothing, and 1 where the question is asked. Without
    memory the mean return is at most 2 / cues - 1.

    Args:
        cues: number of cues, and of actions.
        delay: steps between the cue and the question.
    """

    def __init__(self, cues: int = 4, delay: int = 20) -> None:
        if cues < 2 or delay < 1:
            raise ValueError(
                f"expected at least 2 cues and a delay of at least 1 step, got {cues} and {delay}"
            )
        self._cues, self._delay = cues, delay
        self.observation_space = spaces.Box(-1.0, 1.0, (cues + 2,), np.float32)
        self.action_space = spaces.Discrete(cues)
        self._cue = self._steps = 0

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._cue, self._steps = int(self.np_random.integers(self._cues)), 0
        return self._observation(), {}

    @override
    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        asked = self._steps == self._delay
        self._steps += 1
        reward = (1.0 if action == self._cue else -1.0) if asked else 0.0
        return self._observation(), reward, asked, False, {}

    def _observation(self) -> NDArray[np.float32]:
        shown = np.zeros(self._cues + 2, np.float32)
        if self._steps == 0:
            shown[self._cue] = 1.0
        shown[-2] = self.np_random.uniform(-1.0, 1.0)
        shown[-1] = self._steps == self._delay
        return shown
