"""Playing whole episodes with a policy: its score, and the observations that it visits."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions import distribution_of
from aclearn.envs import VectorEnv, make_vector_env
from aclearn.rollout import EpisodeTracker
from aclearn.types.observation_spec import OBSERVATION
from services.evaluator.saved_policy import SavedPolicy

_MOST_ENVS = 16


class Acts(Protocol):
    """Whatever gives logits."""

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` of observations `[N, *shape]`."""


def play(
    saved: SavedPolicy, policy: Acts, *, episodes: int, greedy: bool, seed: int
) -> tuple[list[float], list[int]]:
    """True returns and lengths (agent steps) of `episodes` whole episodes, in order of their ends.

    Each of the parallel environments plays an equal share of episodes from its start, so that
    short episodes are not counted more often than long ones.

    Args:
        saved: where the policy comes from: names the environment.
        policy: acts.
        episodes: how many.
        greedy: take the most probable action instead of sampling.
        seed: of environments and sampling; other than those of training.
    """
    num_envs = min(_MOST_ENVS, episodes)
    quota = np.full(num_envs, episodes // num_envs)
    quota[: episodes % num_envs] += 1
    rng = np.random.default_rng(seed)
    env = _make(saved, num_envs, seed)
    tracker = EpisodeTracker(num_envs)
    returns: list[float] = []
    lengths: list[int] = []
    try:
        observations = env.reset()[OBSERVATION]
        while quota.any():
            actions = _choose(saved, policy, observations, greedy, rng)
            env.send(actions)
            step = env.recv()
            observations = step.observations[OBSERVATION]
            ended = np.flatnonzero(step.terminated | step.truncated)
            for b, episode in zip(ended, tracker.update(step), strict=True):
                if quota[b] > 0:
                    quota[b] -= 1
                    returns.append(episode.return_)
                    lengths.append(episode.length)
    finally:
        env.close()
    return returns, lengths


def visit(saved: SavedPolicy, policy: Acts, *, count: int, seed: int) -> NDArray[Any]:
    """`count` observations `[N, *shape]` that the sampling policy visits, spread over its games.

    They are in order of time, one of each of 16 games after the other.
    """
    rng = np.random.default_rng(seed)
    env = _make(saved, _MOST_ENVS, seed)
    every = 5  # neighbouring frames say the same
    kept = []
    try:
        observations = env.reset()[OBSERVATION]
        for step in range(every * -(-count // _MOST_ENVS)):
            if step % every == 0:
                kept.append(observations.copy())
            env.send(_choose(saved, policy, observations, False, rng))
            observations = env.recv().observations[OBSERVATION]
    finally:
        env.close()
    return np.concatenate(kept)[:count]


def _choose(
    saved: SavedPolicy,
    policy: Acts,
    observations: NDArray[Any],
    greedy: bool,
    rng: np.random.Generator,
) -> NDArray[np.integer]:
    distribution = distribution_of(saved.architecture.action_spec)
    logits = policy.logits(observations)
    return distribution.mode(logits) if greedy else distribution.sample(logits, rng)[0]


def _make(saved: SavedPolicy, num_envs: int, seed: int) -> VectorEnv:
    config = saved.config
    return make_vector_env(
        config.env,
        num_envs=num_envs,
        seed=seed,
        step_timeout_s=config.actors.step_timeout_s,
        max_faults=config.actors.max_env_faults,
    )
