"""`aclearn evaluate`: play episodes with the policy of a checkpoint and report its score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aclearn.acting import greedy_actions, sample_actions
from aclearn.config import Config, config_from_yaml
from aclearn.envs import EpisodeTracker, make_vector_env
from aclearn.errors import CheckpointError
from aclearn.runs import RunFolder, load_best, load_newest
from compress import OnnxPolicy
from services.policies import architecture_of

_MOST_ENVS = 16


@dataclass(frozen=True)
class Evaluation:
    """What a policy scored.

    Attributes:
        returns: the true return of each episode, in order of their ends.
        lengths: agent steps of each.
        checkpoint: the file that was played.
        updates: updates behind it.
    """

    returns: list[float]
    lengths: list[int]
    checkpoint: Path
    updates: int

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

    Each of the parallel environments plays an equal share of episodes from its start, so that
    short episodes are not counted more often than long ones.

    Args:
        path: the run folder.
        episodes: how many.
        greedy: take the most probable action instead of sampling.
        best: the best checkpoint instead of the newest.
        seed: of environments and sampling; other than those of training.

    Raises:
        AclearnError: the run, its checkpoint or its environment cannot be used.
    """
    folder = RunFolder.open(path)
    config: Config = config_from_yaml(folder.read_config_yaml())
    architecture = architecture_of(config)
    load = load_best if best else load_newest
    checkpoint = load(folder.checkpoints_dir, expect_architecture=architecture.digest())
    if checkpoint is None:
        raise CheckpointError(f"{folder.checkpoints_dir}: no checkpoint yet; train first")
    policy = OnnxPolicy(architecture)
    policy.swap(
        {
            name.removeprefix("weights/"): tensor
            for name, tensor in checkpoint.tensors.items()
            if name.startswith("weights/")
        }
    )
    num_envs = min(_MOST_ENVS, episodes)
    quota = np.full(num_envs, episodes // num_envs)
    quota[: episodes % num_envs] += 1
    rng = np.random.default_rng(seed)

    def choose(logits: NDArray[np.float32]) -> NDArray[np.int32]:
        actions, _ = greedy_actions(logits) if greedy else sample_actions(logits, rng)
        return actions

    env = make_vector_env(
        config.env,
        num_envs=num_envs,
        seed=seed,
        step_timeout_s=config.actors.step_timeout_s,
        max_faults=config.actors.max_env_faults,
    )
    tracker = EpisodeTracker(num_envs)
    returns: list[float] = []
    lengths: list[int] = []
    try:
        observations = env.reset()
        while quota.any():
            actions = choose(policy.logits(observations))
            env.send(actions.astype(np.int64))
            step = env.recv()
            observations = step.observations
            ended = np.flatnonzero(step.terminated | step.truncated)
            for b, episode in zip(ended, tracker.update(step), strict=True):
                if quota[b] > 0:
                    quota[b] -= 1
                    returns.append(episode.return_)
                    lengths.append(episode.length)
    finally:
        env.close()
    return Evaluation(
        returns, lengths, checkpoint.path, int(checkpoint.state["counters"]["updates"])
    )
