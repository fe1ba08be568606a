"""Playing whole episodes with a policy: its score, and the observations that it visits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aclearn.config import Config, config_from_yaml
from aclearn.distributions import greedy_actions, sample_actions
from aclearn.envs import VectorEnv, make_vector_env
from aclearn.errors import CheckpointError
from aclearn.metrics import EPISODES_FOR_TARGET
from aclearn.policies import Architecture
from aclearn.rollout import EpisodeTracker
from aclearn.runs import Checkpoint, RunFolder, load_best, load_newest
from aclearn.types import PolicyVersion
from services.policies import architecture_of
from services.probe import probe_environment

_MOST_ENVS = 16


class Acts(Protocol):
    """Whatever gives logits."""

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` of observations `[N, *shape]`."""


@dataclass(frozen=True, eq=False)
class SavedPolicy:
    """The policy of a run's checkpoint.

    Attributes:
        config: of the run.
        architecture: of the policy.
        tensors: all weights, those of the value included.
        checkpoint: where they come from.
    """

    config: Config
    architecture: Architecture
    tensors: dict[str, NDArray[np.float32]]
    checkpoint: Checkpoint

    @property
    def at(self) -> PolicyVersion:
        """Epoch and version of the weights."""
        state = self.checkpoint.state
        return PolicyVersion(int(state["epoch"]), int(state["counters"]["policy_version"]))

    @property
    def updates(self) -> int:
        """Updates behind the weights."""
        return int(self.checkpoint.state["counters"]["updates"])

    @property
    def return_mean(self) -> float | None:
        """Mean return of the 100 episodes that made it the best; None of any other checkpoint."""
        mean = self.checkpoint.state["return_mean_100"]
        return None if mean is None else float(mean)


def load_policy(path: Path, *, best: bool = False) -> SavedPolicy:
    """The newest (or best) policy of a run folder.

    Raises:
        AclearnError: the run, its checkpoint or its environment cannot be used.
    """
    folder = RunFolder.open(path)
    config: Config = config_from_yaml(folder.read_config_yaml(), source=str(folder.config_path))
    architecture = architecture_of(config, probe_environment(config))
    load = load_best if best else load_newest
    checkpoint = load(folder.checkpoints_dir, expect_architecture=architecture.digest())
    if checkpoint is None and best:
        raise CheckpointError(
            f"{folder.checkpoints_dir}: no checkpoint was saved as the best, which takes a mean of "
            f"{EPISODES_FOR_TARGET} episodes; leave out --best for the newest"
        )
    if checkpoint is None:
        raise CheckpointError(f"{folder.checkpoints_dir}: no checkpoint yet; train first")
    tensors = {
        name.removeprefix("weights/"): tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith("weights/")
    }
    return SavedPolicy(config, architecture, tensors, checkpoint)


def play(
    config: Config, policy: Acts, *, episodes: int, greedy: bool, seed: int
) -> tuple[list[float], list[int]]:
    """True returns and lengths (agent steps) of `episodes` whole episodes, in order of their ends.

    Each of the parallel environments plays an equal share of episodes from its start, so that
    short episodes are not counted more often than long ones.

    Args:
        config: names the environment.
        policy: acts.
        episodes: how many.
        greedy: take the most probable action instead of sampling.
        seed: of environments and sampling; other than those of training.
    """
    num_envs = min(_MOST_ENVS, episodes)
    quota = np.full(num_envs, episodes // num_envs)
    quota[: episodes % num_envs] += 1
    rng = np.random.default_rng(seed)
    env = _make(config, num_envs, seed)
    tracker = EpisodeTracker(num_envs)
    returns: list[float] = []
    lengths: list[int] = []
    try:
        observations = env.reset()
        while quota.any():
            actions = _choose(policy, observations, greedy, rng)
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
    return returns, lengths


def visit(config: Config, policy: Acts, *, count: int, seed: int) -> NDArray[Any]:
    """`count` observations `[N, *shape]` that the sampling policy visits, spread over its games.

    They are in order of time, one of each of 16 games after the other.
    """
    rng = np.random.default_rng(seed)
    env = _make(config, _MOST_ENVS, seed)
    every = 5  # neighbouring frames say the same
    kept = []
    try:
        observations = env.reset()
        for step in range(every * -(-count // _MOST_ENVS)):
            if step % every == 0:
                kept.append(observations.copy())
            env.send(_choose(policy, observations, False, rng).astype(np.int64))
            observations = env.recv().observations
    finally:
        env.close()
    return np.concatenate(kept)[:count]


def _choose(
    policy: Acts, observations: NDArray[Any], greedy: bool, rng: np.random.Generator
) -> NDArray[np.int32]:
    logits = policy.logits(observations)
    actions, _ = greedy_actions(logits) if greedy else sample_actions(logits, rng)
    return actions


def _make(config: Config, num_envs: int, seed: int) -> VectorEnv:
    return make_vector_env(
        config.env,
        num_envs=num_envs,
        seed=seed,
        step_timeout_s=config.actors.step_timeout_s,
        max_faults=config.actors.max_env_faults,
    )
