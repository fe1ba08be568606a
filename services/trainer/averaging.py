"""`trainer.average_every`: ranks that make updates of their own, and then take their mean."""

from __future__ import annotations

from aclearn.learning import Learner
from aclearn.learning.ranks import Group
from aclearn.telemetry import part


class Averaging:
    """Takes the mean of the weights over the ranks, every so many batches.

    Args:
        every: batches of all ranks; None: all ranks make each update together.
    """

    def __init__(self, every: int | None, learner: Learner, group: Group) -> None:
        self.every, self._learner, self._group = every, learner, group

    def is_due(self, batches: int) -> bool:
        """Whether the ranks average behind their batch of this number."""
        return self.every is not None and batches % self.every == 0

    def average(self) -> None:
        """Take the mean over the ranks, where these make updates of their own."""
        if self.every is not None:
            with self._learner.turn(), part("exchange"):
                self._learner.state.average(self._group)

    def mark(self, batches: int, updates: int) -> tuple[int, int]:
        """What is the same in all ranks between two batches."""
        if self.every is None:
            return updates, int(self._learner.state.digest())
        # between two averages each makes updates of its own
        return batches, int(self._learner.state.digest()) if self.is_due(batches) else 0
