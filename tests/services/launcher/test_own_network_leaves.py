"""A network of a user's own on a Dict observation, run by actors and by a predictor."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces


class Pair(gymnasium.Env):
    """Pays action 1 where both leaves show a 1, else action 0: one leaf alone gives 6 of 8."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (1, 5, 5), np.uint8), "name": spaces.Box(0, 1, (2,))}
    )
    action_space = spaces.Discrete(2)

    def _show(self):
        pixel, word = self.np_random.integers(2, size=2).tolist()
        self.best = pixel * word
        image = np.full((1, 5, 5), 255 * pixel, np.uint8)
        return {"image": image, "name": np.eye(2, dtype=np.float32)[word]}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action):
        reward = float(action == self.best)
        self.steps += 1
        return self._show(), reward, self.steps == 8, False, {}


@pytest.mark.parametrize("inference", ["local", "predictor"])
def test_each_leaf_reaches_the_module(start, inference: str) -> None:
    run = start(
        env={"id": f"{__name__}:Pair"},
        policy={"architecture": "tests.support.own_networks:OfLeaves", "hidden": None},
        actors={"processes": 1, "envs_per_group": 32, "unroll_length": 8, "inference": inference},
        optimiser={"learning_rate": 0.03},
        run={"max_updates": 100, "target_return": 7.0},
    )
    run.run()
    assert not run.refused
    assert run.summary()["reached_target_at_s"] is not None, run.summary()
