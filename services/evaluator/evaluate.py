"""`aclearn evaluate`: plays episodes with a checkpoint's policy and reports the score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from aclearn.runs import NEWEST
from services.evaluator.play import (
    MOST_STEPS,
    Played,
    deviation_of,
    play,
    standard_error_of,
)
from services.evaluator.saved_policy import load_policy


@dataclass(frozen=True)
class Evaluation:
    """The score of a policy.

    Attributes:
        returns: the true return of each episode, in order of their ends.
        lengths: agent steps of each.
        cut: number of episodes that were cut at `most_steps`; they count with their returns so far.
        info: means of the figures of `env.info_metrics` over the episodes that have them.
        env_steps: agent steps of the run until the checkpoint.
        greedy: whether the most probable action was taken, as of action values always.
        saved_mean: for a best checkpoint, the mean return that made it the best.
    """

    returns: list[float]
    lengths: list[int]
    checkpoint: Path
    updates: int
    env_steps: int = 0
    greedy: bool = False
    saved_mean: float | None = None
    cut: int = 0
    info: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def deviation(self) -> float:
        """Standard deviation of the returns; 0 of one."""
        return deviation_of(self.returns)

    @property
    def standard_error(self) -> float:
        """Standard error of the mean: its deviation between evaluations with other seeds."""
        return standard_error_of(self.returns)


def evaluate(
    path: Path,
    *,
    episodes: int,
    greedy: bool = False,
    at: str | int = NEWEST,
    seed: int = 1_000_003,
    most_steps: int = MOST_STEPS,
    progress: Callable[[Played], None] = lambda played: None,
) -> Evaluation:
    """Play `episodes` whole episodes with a checkpoint of the run.

    Args:
        at: which one; see `checkpoint_in`.
        seed: of environments and sampling; must differ from training.
        most_steps: agent steps after which an episode is cut.

    Raises:
        AclearnError: the run, its checkpoint or its environment cannot be used.
    """
    saved = load_policy(path, at=at)
    played = play(
        saved,
        saved.executable(),
        episodes=episodes,
        greedy=greedy,
        seed=seed,
        most_steps=most_steps,
        progress=progress,
    )
    return Evaluation(
        played.returns,
        played.lengths,
        saved.checkpoint.path,
        saved.updates,
        saved.env_steps,
        greedy or saved.config.loss.acting == "epsilon",
        saved.return_mean,
        played.cut,
        played.info_means,
    )
