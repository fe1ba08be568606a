"""Returns and lengths of finished episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aclearn.types import EnvStep


@dataclass(frozen=True)
class FinishedEpisode:
    """One episode that terminated or was truncated.

    Attributes:
        return_: sum of its true rewards, neither clipped nor discounted.
        length: agent steps.
        chain: id of the chain whose policies played all of it; "" for several.
    """

    return_: float
    length: int
    chain: str = "none"


class EpisodeTracker:
    """Sums the running episode of each of `num_envs` environments."""

    def __init__(self, num_envs: int) -> None:
        self._returns = np.zeros(num_envs, np.float64)
        self._lengths = np.zeros(num_envs, np.int64)
        self._chains: dict[str, int] = {}
        #: Index of each running episode's chain; -1 for several.
        self._played = np.zeros(num_envs, np.int64)

    def update(
        self,
        step: EnvStep,
        chains: Sequence[str] = ("none",),
        chain_index: NDArray[np.int32] | None = None,
    ) -> list[FinishedEpisode]:
        """The episodes that this step finished, in the order of the environments.

        Call it once for every step, in order. A faulted episode is dropped; a lost life ends none.

        Args:
            step: of all environments.
            chains: of the policies that chose its actions.
            chain_index: index into `chains` for each action, as in an `ActionBatch`.
        """
        # A reset step begins an episode and belongs to none; a faulted one is a reset step too.
        self._returns[step.reset] = 0.0
        self._lengths[step.reset] = -1
        self._returns += step.rewards
        self._lengths += 1
        self._observe_chains(chains, chain_index)
        ended = step.terminated | step.truncated
        if not ended.any():
            return []
        names = [*self._chains, ""]  # -1 is the last one
        return [
            FinishedEpisode(float(self._returns[b]), int(self._lengths[b]), names[self._played[b]])
            for b in np.flatnonzero(ended)
        ]

    def _observe_chains(self, chains: Sequence[str], chain_index: NDArray[np.int32] | None) -> None:
        numbers = [self._chains.setdefault(id_, len(self._chains)) for id_ in chains]
        if len(self._chains) == 1:
            return
        played = numbers[0] if chain_index is None else np.array(numbers)[chain_index]
        goes_on = self._lengths > 1
        self._played = np.where(goes_on & (self._played != played), -1, played)
