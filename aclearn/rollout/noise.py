"""Exploration of a deterministic policy: Ornstein–Uhlenbeck noise of each environment."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aclearn.types import ActionBatch

#: Bound of an action before it is converted to a sampled number, whose tanh it is.
LARGEST_NOISY = 1.0 - 1e-6


class OrnsteinUhlenbeckNoise:
    """Adds to actions noise x that forgets slowly: x ← (1 − damping) · x + std · N(0, 1).

    Far from an episode's begin its variance is std² / (1 − (1 − damping)²), its autocorrelation
    over k steps (1 − damping)^k (Uhlenbeck & Ornstein 1930, in steps of 1). It begins each episode
    at 0. With a damping of 1 it is independent from step to step.

    Args:
        numbers: n, of an action; they are squashed by tanh.
        std: deviation of the random change in a step, where an action's bounds are -1 and 1.
        damping: share of the noise that a step takes away.
    """

    def __init__(
        self, num_envs: int, numbers: int, *, std: float, damping: float, rng: np.random.Generator
    ) -> None:
        self._std, self._kept, self._rng = np.float32(std), np.float32(1.0 - damping), rng
        self.noise = np.zeros((num_envs, numbers), np.float32)

    def explore(self, choice: ActionBatch) -> ActionBatch:
        """The policy's actions plus noise; log μ is 0, as of a policy without probabilities."""
        change = self._rng.standard_normal(self.noise.shape, dtype=np.float32)
        self.noise = self._kept * self.noise + self._std * change
        noisy = np.tanh(choice.actions) + self.noise
        actions = np.arctanh(noisy.clip(-LARGEST_NOISY, LARGEST_NOISY))
        return choice._replace(actions=actions, log_prob=np.zeros_like(choice.log_prob))

    def begin(self, started: NDArray[np.bool_]) -> None:
        """Start from 0 in the environments `[B]` that begin an episode."""
        self.noise[started] = 0.0
