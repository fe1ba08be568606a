"""ε-greedy exploration: some actions are drawn from all allowed ones instead."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class EpsilonSettings(Protocol):
    """The keys of `loss` that choose ε."""

    @property
    def epsilon(self) -> float: ...
    @property
    def epsilon_exponent(self) -> float: ...
    @property
    def epsilon_steps(self) -> int: ...


def final_epsilons(settings: EpsilonSettings, environments: int) -> NDArray[np.float32]:
    """ε of each environment of a run, ε^(1 + α·i/(N−1)) of number i (Horgan et al. 2018)."""
    place = np.linspace(0.0, 1.0, environments) if environments > 1 else np.array([0.5])
    epsilons = settings.epsilon ** (1.0 + settings.epsilon_exponent * place)
    return epsilons.astype(np.float32)


class EpsilonGreedy:
    """Gives ε `[B]` of neighbouring environments, step by step; it falls linearly from 1.

    Args:
        settings: the section `loss`.
        first: number of the first of them.
        rows: B.
        environments: of the whole run.
    """

    def __init__(
        self, settings: EpsilonSettings, *, first: int, rows: int, environments: int
    ) -> None:
        self._final = final_epsilons(settings, environments)[first : first + rows]
        self._steps, self._done = settings.epsilon_steps, 0

    def next(self) -> NDArray[np.float32]:
        """ε of the next step."""
        gone = min(1.0, self._done / self._steps) if self._steps else 1.0
        self._done += 1
        epsilons: NDArray[np.float32] = 1.0 + (self._final - 1.0) * np.float32(gone)
        return epsilons
