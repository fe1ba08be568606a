"""`aclearn evaluate`: plays episodes with a checkpoint's policy and reports the score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aclearn.runs import NEWEST
from services.evaluator.play import (
    MOST_STEPS,
    Played,
    deviation_of,
    play,
    players_of,
    standard_error_of,
)
from services.evaluator.saved_policy import SavedRun, load_run


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
    def length_mean(self) -> float:
        """Mean length in agent steps."""
        return float(np.mean(self.lengths))

    @property
    def deviation(self) -> float:
        """Standard deviation of the returns; 0 of one."""
        return deviation_of(self.returns)

    @property
    def standard_error(self) -> float:
        """Standard error of the mean: its deviation between evaluations with other seeds."""
        return standard_error_of(self.returns)


def evaluate_policies(path: Path, *, at: str | int = NEWEST, **keys: Any) -> dict[str, Evaluation]:
    """The scores of a run folder's checkpoint; see `evaluate_run`.

    Args:
        at: which one; see `checkpoint_in`.

    Raises:
        AclearnError: the run, its checkpoint or its environment cannot be used.
    """
    return evaluate_run(load_run(path, at=at), **keys)


def evaluate_run(
    run: SavedRun,
    *,
    episodes: int,
    greedy: bool = False,
    seed: int = 1_000_003,
    most_steps: int = MOST_STEPS,
    progress: Callable[[Mapping[str, Played]], None] = lambda played: None,
) -> dict[str, Evaluation]:
    """Play `episodes` whole episodes with all policies of a checkpoint; returns policy → score.

    Args:
        seed: of environments and sampling; must differ from training.
        most_steps: agent steps after which an episode is cut.

    Raises:
        AclearnError: the environment cannot be used.
    """
    played = play(
        run,
        players_of(run, greedy=greedy),
        episodes=episodes,
        seed=seed,
        most_steps=most_steps,
        progress=progress,
    )
    return {
        name: Evaluation(
            played[name].returns,
            played[name].lengths,
            saved.checkpoint.path,
            saved.updates,
            int(run.checkpoint.state["account"]["env_steps"]),
            greedy or saved.config.loss.acting == "epsilon",
            saved.return_mean,
            played[name].cut,
            played[name].info_means,
        )
        for name, saved in run.policies.items()
    }


def evaluate(
    path: Path, *, policy: str | None = None, at: str | int = NEWEST, **keys: Any
) -> Evaluation:
    """The score of one of the policies, all of which play; see `evaluate_policies`.

    Args:
        policy: its name; None: the only one.

    Raises:
        AclearnError: as of `evaluate_policies`; or there is no such policy.
    """
    run = load_run(path, at=at)
    name = run.policy(policy).name  # before it plays for long
    return evaluate_run(run, **keys)[name]
