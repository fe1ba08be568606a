"""What was played: episodes for the heartbeats, and steps for the account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from aclearn.learning import StepAccount
from aclearn.metrics import EPISODES_FOR_TARGET
from aclearn.resident import EpisodeSums
from aclearn.types import EpisodeCohort, bounded_cohorts


class Played:
    """Counts the rollouts of one trainer.

    Args:
        incarnation: of the trainer's process, for the account.
        burn_in_steps: first steps of a rollout that are not learned.

    Attributes:
        episodes: that have ended.
    """

    def __init__(self, account: StepAccount, incarnation: str, burn_in_steps: int = 0) -> None:
        self._account, self._incarnation = account, incarnation
        self._burn_in_steps = burn_in_steps
        self.episodes = 0
        self._ended, self._ended_return = 0, 0.0  # since the last heartbeat
        self._cohorts: list[EpisodeCohort] = []

    def add(self, sums: EpisodeSums, cohorts: Sequence[EpisodeCohort], valid: Tensor) -> int:
        """Count a rollout; the number of its steps to learn.

        Args:
            valid: `[T, B]` bool.
        """
        self.watch(sums, cohorts)
        self._account.produced(self._incarnation, int(valid.sum()))
        return int(valid[self._burn_in_steps :].sum())

    def watch(self, sums: EpisodeSums, cohorts: Sequence[EpisodeCohort]) -> None:
        """Count the episodes of a rollout alone."""
        self.episodes += sums.episodes
        self._ended += sums.episodes
        self._ended_return += sums.returns
        self._cohorts = bounded_cohorts([*self._cohorts, *cohorts])

    def take(self, steps: int) -> dict[str, Any]:
        """Fields of a heartbeat; the returns are the mean of those that ended, at most 100 times.

        Args:
            steps: of each environment, since the start.
        """
        ended, total, cohorts = self._ended, self._ended_return, self._cohorts
        self._ended, self._ended_return, self._cohorts = 0, 0.0, []
        returns = [total / max(1, ended)] * min(ended, EPISODES_FOR_TARGET)
        return {"episode_returns": returns, "cohorts": cohorts, "clock_s": float(steps)}

    def heartbeat_fields(self) -> dict[str, dict[str, Any]]:
        """Counters of a heartbeat."""
        return {"counters": {"episodes": self.episodes}}
