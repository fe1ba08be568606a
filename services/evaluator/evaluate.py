"""`aclearn evaluate`: plays episodes with a checkpoint's policy and reports the score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from services.evaluator.play import play
from services.evaluator.saved_policy import load_policy


@dataclass(frozen=True)
class Evaluation:
    """The score of a policy.

    Attributes:
        returns: the true return of each episode, in order of their ends.
        lengths: agent steps of each.
        checkpoint: its file.
        updates: number of updates in it.
        saved_mean: for a best checkpoint, the mean return of 100 episodes that made it the best.
    """

    returns: list[float]
    lengths: list[int]
    checkpoint: Path
    updates: int
    saved_mean: float | None = None

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def deviation(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))


def evaluate(
    path: Path, *, episodes: int, greedy: bool = False, best: bool = False, seed: int = 1_000_003
) -> Evaluation:
    """Play `episodes` whole episodes with the run's newest (or best) checkpoint.

    Args:
        path: the run folder.
        episodes: number of episodes.
        greedy: take the most probable action instead of sampling.
        best: the best checkpoint instead of the newest.
        seed: of environments and sampling; must differ from training.

    Raises:
        AclearnError: the run, its checkpoint or its environment cannot be used.
    """
    saved = load_policy(path, best=best)
    returns, lengths = play(saved, saved.executable(), episodes=episodes, greedy=greedy, seed=seed)
    return Evaluation(returns, lengths, saved.checkpoint.path, saved.updates, saved.return_mean)
