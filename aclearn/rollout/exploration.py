"""Exploration at the actor: ε of ε-greedy policies, and noise of deterministic ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aclearn.types import ActionBatch

#: Bound of an action before it is converted to a sampled number, whose tanh it is.
LARGEST_NOISY = 1.0 - 1e-6


def final_epsilons(epsilon: float, exponent: float, environments: int) -> NDArray[np.float32]:
    """ε of each of N environments, ε^(1 + exponent · i/(N−1)) of number i (Horgan et al. 2018)."""
    place = np.linspace(0.0, 1.0, environments) if environments > 1 else np.array([0.5])
    return (epsilon ** (1.0 + exponent * place)).astype(np.float32)


def share_left(done: int, steps: int) -> float:
    """How far ε still is above its final value after `done` of the `steps` in which it falls."""
    return max(0.0, 1.0 - done / steps) if steps else 0.0


class EpsilonGreedy:
    """Gives ε `[B]` of some environments, step by step.

    Args:
        final: `[B]`, ε after the first steps.
        steps: in which ε falls from 1 to it, linearly.
    """

    def __init__(self, final: NDArray[np.float32], steps: int) -> None:
        self._final, self._steps, self._done = final, steps, 0

    def next(self) -> NDArray[np.float32]:
        """ε of the next step."""
        left = np.float32(share_left(self._done, self._steps))
        self._done += 1
        return self._final + (np.float32(1.0) - self._final) * left


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
