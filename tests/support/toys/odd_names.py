"""An environment and a loss whose parts have names that no one here would choose."""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from aclearn.algorithms import Loss, LossSums
from aclearn.config import LossConfig

LEAVES = ("a b", "é", "..", '"q"', "x.y", "成功", "a\\b", "%s{}", "'", "<b>", "A", "a")
INFO = ("tracking_error", "é/ü", "成功", "stats")
STATS = {"won": 1.0, "../won": 2.0, "a\nb": 3.0, "\ud800z": 4.0, "": 5.0}
FIGURES = {
    **dict.fromkeys(("td_error", "a b/é", "..", '"q"', "%s{}", "a\nb", "\ud800"), 7.0),
    **dict.fromkeys(("part_seconds", "chain_steps", "metrics_error", "env_steps", "x" * 70), 8.0),
}


class Named(gymnasium.Env):
    """Episodes of three steps."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict({name: spaces.Box(-1.0, 1.0, (2,)) for name in LEAVES})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._shown(), {}

    def step(self, action):
        self.steps += 1
        info = dict.fromkeys(INFO, 0.5) | {"stats": STATS}
        return self._shown(), 1.0, self.steps == 3, False, info

    def _shown(self):
        return {name: self.np_random.uniform(-1, 1, 2).astype(np.float32) for name in LEAVES}


class NamedLoss(Loss):
    config_model = LossConfig
    recomputes_targets = True

    def __call__(self, batch, outputs, correction, config):
        valid, zero = batch.valid, torch.zeros(())
        error = torch.where(valid, outputs.values - correction.targets, zero).square().sum()
        return LossSums(error, {name: valid.sum() * value for name, value in FIGURES.items()})
