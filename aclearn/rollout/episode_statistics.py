"""Returns and lengths of finished episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aclearn.rollout.episode_cohorts import EpisodeCohorts
from aclearn.rollout.info_metrics import InfoMetrics
from aclearn.types import EnvStep

#: An episode may have no end, and means wait for it. They count it with its return so far after
#: these agent steps, and this many times the longest that has ended: long ones are no exception.
_LEAST_STEPS_OF_A_PART: Final = 10_000
_TIMES_THE_LONGEST: Final = 4


@dataclass(frozen=True)
class FinishedEpisode:
    """One episode that terminated or was truncated.

    Attributes:
        return_: sum of its true rewards, neither clipped nor discounted.
        chain: id of the chain whose policies played all of it; "" for several.
        info: figures of `env.info_metrics` that the environment gave at its end.
    """

    return_: float
    length: int
    chain: str = "none"
    info: Mapping[str, float] = field(default_factory=dict)


class EpisodeTracker:
    """Sums the running episode of each of `num_envs` environments.

    Args:
        cohorts: gets every episode, one without end in long parts; None where nobody asks for
            means.
        info_metrics: reads the episodes' figures; None: they have none.

    Attributes:
        returns, lengths: `[B]`, so far, of the running episodes.
    """

    def __init__(
        self,
        num_envs: int,
        cohorts: EpisodeCohorts | None = None,
        info_metrics: InfoMetrics | None = None,
    ) -> None:
        self._cohorts, self._info_metrics = cohorts, info_metrics
        #: Number of each running episode's cohort; -1 before its first step.
        self._cohort = np.full(num_envs, -1, np.int64)
        self.returns = np.zeros(num_envs, np.float64)
        self.lengths = np.zeros(num_envs, np.int64)
        #: Of the parts of the running episodes that are in the cohorts.
        self._counted_returns = np.zeros(num_envs, np.float64)
        self._counted_lengths = np.zeros(num_envs, np.int64)
        self._longest = 0  # of the episodes that have ended
        self._no_part_for = 0  # steps
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
            chain_index: index into `chains` for each action, as in an `ActionBatch`.
        """
        # A reset step begins an episode and belongs to none; a faulted one is a reset step too.
        self.returns[step.reset] = 0.0
        self.lengths[step.reset] = -1
        self.returns += step.rewards
        self.lengths += 1
        self._observe_chains(chains, chain_index)
        self._observe_begins(step)
        finished = self._finished(step)
        self._count_parts()
        return finished

    def _finished(self, step: EnvStep) -> list[FinishedEpisode]:
        ended = np.flatnonzero(step.terminated | step.truncated)
        if not ended.size:
            return []
        names = [*self._chains, ""]  # -1 is the last one
        finished = []
        for b in ended:
            episode = FinishedEpisode(
                float(self.returns[b]),
                int(self.lengths[b]),
                names[self._played[b]],
                self._info_metrics.read(step.infos.get(int(b), {})) if self._info_metrics else {},
            )
            finished.append(episode)
            self._longest = max(self._longest, episode.length)
            if self._cohorts is not None:
                number = int(self._cohort[b])
                if self._counted_lengths[b]:  # a rest, of any length
                    self._cohorts.drop(number)
                else:
                    self._cohorts.end(number, episode.return_, episode.length, episode.info)
                self._cohort[b] = -1
        return finished

    def _count_parts(self) -> None:
        """Put the parts of episodes without end into the cohorts; a next part begins."""
        self._no_part_for -= 1
        if self._cohorts is None or self._no_part_for > 0:
            return
        lengths = self.lengths - self._counted_lengths
        least = max(_LEAST_STEPS_OF_A_PART, _TIMES_THE_LONGEST * self._longest)
        self._no_part_for = least - int(lengths.max())  # a length grows by 1 in a step
        long = lengths >= least
        for b in np.flatnonzero(long & (self._cohort >= 0)):
            return_ = float(self.returns[b] - self._counted_returns[b])
            self._cohorts.end(int(self._cohort[b]), return_, int(lengths[b]), {})
            self._cohort[b] = self._cohorts.begin(1)
            self._counted_returns[b] = self.returns[b]
            self._counted_lengths[b] = self.lengths[b]

    def _observe_begins(self, step: EnvStep) -> None:
        self._counted_returns[step.reset] = 0.0
        self._counted_lengths[step.reset] = 0
        if self._cohorts is None:
            return
        faulted = step.reset & (self._cohort >= 0)
        if faulted.any():
            for number in self._cohort[faulted]:
                self._cohorts.drop(int(number))
            self._cohort[faulted] = -1
        begun = self.lengths == 1
        if begun.any():
            self._cohort[begun] = self._cohorts.begin(int(np.count_nonzero(begun)))

    def _observe_chains(self, chains: Sequence[str], chain_index: NDArray[np.int32] | None) -> None:
        numbers = [self._chains.setdefault(id_, len(self._chains)) for id_ in chains]
        if len(self._chains) == 1:
            return
        played = numbers[0] if chain_index is None else np.array(numbers)[chain_index]
        goes_on = self.lengths > 1
        self._played = np.where(goes_on & (self._played != played), -1, played)
