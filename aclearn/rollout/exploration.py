"""ε-greedy exploration: some actions are drawn from all allowed ones instead."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def final_epsilons(epsilon: float, exponent: float, environments: int) -> NDArray[np.float32]:
    """ε of each of N environments, ε^(1 + exponent · i/(N−1)) of number i (Horgan et al. 2018)."""
    place = np.linspace(0.0, 1.0, environments) if environments > 1 else np.array([0.5])
    return (epsilon ** (1.0 + exponent * place)).astype(np.float32)


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
        left = np.float32(max(0.0, 1.0 - self._done / self._steps) if self._steps else 0.0)
        self._done += 1
        return self._final + (np.float32(1.0) - self._final) * left
