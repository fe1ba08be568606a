"""Returns and lengths of finished episodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aclearn.types import EnvStep


@dataclass(frozen=True)
class FinishedEpisode:
    """One episode that terminated or was truncated.

    Attributes:
        return_: sum of its true rewards, neither clipped nor discounted.
        length: agent steps.
    """

    return_: float
    length: int


class EpisodeTracker:
    """Adds up the running episode of each of `num_envs` environments."""

    def __init__(self, num_envs: int) -> None:
        self._returns = np.zeros(num_envs, np.float64)
        self._lengths = np.zeros(num_envs, np.int64)

    def update(self, step: EnvStep) -> list[FinishedEpisode]:
        """The episodes that this step finished, in the order of the environments.

        Every step must be given, once and in order. A faulted episode is forgotten; a lost life
        ends nothing.
        """
        # A reset step begins an episode and belongs to none; a faulted one is a reset step too.
        self._returns[step.reset] = 0.0
        self._lengths[step.reset] = -1
        self._returns += step.rewards
        self._lengths += 1
        ended = step.terminated | step.truncated
        if not ended.any():
            return []
        return [
            FinishedEpisode(float(self._returns[b]), int(self._lengths[b]))
            for b in np.flatnonzero(ended)
        ]
