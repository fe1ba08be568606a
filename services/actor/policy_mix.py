"""Draws which of two policies chooses an action: for each unroll, and for whole episodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class PolicyMix:
    """Draws for one group of environments where the uncompressed policy plays. Pure.

    The uncompressed policy plays some whole episodes, so that returns can be compared. In the
    others the current rung's policy plays an unroll of the group with a given probability, or an
    episode, where a change of the policy in an episode would lose the state.

    Args:
        original_share: probability that the uncompressed policy plays an episode.

    Attributes:
        compressed_share: probability that the current rung's policy plays an unroll or episode.
    """

    def __init__(
        self, num_envs: int, unroll_length: int, original_share: float, rng: np.random.Generator
    ) -> None:
        self._unroll_length, self._original_share, self._rng = unroll_length, original_share, rng
        self.compressed_share = 1.0
        self._step = 0
        self._mixed = np.zeros(num_envs, np.bool_)  # of `compressed_share`
        self._episodes = np.zeros(num_envs, np.bool_)  # of `original_share`

    @property
    def needs_original(self) -> bool:
        """Whether the uncompressed policy may play."""
        return self._original_share > 0.0 or self.compressed_share < 1.0

    def begin(self) -> NDArray[np.bool_]:
        """`[B]`: where the uncompressed policy takes the first action."""
        return self._draw(np.ones(len(self._episodes), np.bool_))

    def advance(self, reset: NDArray[np.bool_], *, by_episode: bool = False) -> NDArray[np.bool_]:
        """`[B]`: where the uncompressed policy takes the next action.

        Args:
            reset: `[B]`, where the last step began an episode.
            by_episode: `compressed_share` is of episodes; else it is of unrolls.
        """
        self._step = (self._step + 1) % self._unroll_length
        return self._draw(reset, by_episode)

    def _draw(self, begins: NDArray[np.bool_], by_episode: bool = False) -> NDArray[np.bool_]:
        if by_episode:
            drawn = self._rng.random(len(begins)) >= self.compressed_share
            self._mixed = np.where(begins, drawn, self._mixed)
        elif self._step == 0:
            self._mixed = np.full(len(begins), self._rng.random() >= self.compressed_share)
        if begins.any():
            drawn = self._rng.random(len(begins)) < self._original_share
            self._episodes = np.where(begins, drawn, self._episodes)
        return self._episodes | self._mixed
