"""Groups of environments that an actor steps in turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aclearn.config import Config
from aclearn.envs import VectorEnv, make_vector_env
from aclearn.rollout import EpisodeTracker, UnrollBuilder
from aclearn.types import ActionBatch
from services.actor.policy_mix import PolicyMix
from services.runtime.policy_factory import unroll_spec_of


@dataclass
class Group:
    """Environments that are stepped together, and their current unroll."""

    env: VectorEnv
    builder: UnrollBuilder
    episodes: EpisodeTracker
    mix: PolicyMix | None = None
    choice: ActionBatch | None = None


def make_groups(config: Config, *, actor_index: int, restarts: int = 0) -> list[Group]:
    """The environments of one actor, each group with seeds of its own.

    Raises:
        EnvironmentFailure: they cannot be made.
    """
    actors = config.actors
    groups = []
    for g in range(actors.groups):
        first = (actor_index * actors.groups + g) * actors.envs_per_group
        env = make_vector_env(
            config.env,
            num_envs=actors.envs_per_group,
            seed=environment_seed(config.run.seed, first, restarts),
            step_timeout_s=actors.step_timeout_s,
            max_faults=actors.max_env_faults,
            threads=actors.emulator_threads,
        )
        builder = UnrollBuilder(
            unroll_spec_of(config, env.spec),
            num_envs=env.num_envs,
            clip_rewards=config.env.clip_rewards,
            life_loss_ends=config.env.life_loss_ends,
        )
        mix = None
        if config.mixes_policies:
            rng = np.random.default_rng((config.run.seed, actor_index, 3, restarts, g))
            mix = PolicyMix(env.num_envs, actors.unroll_length, actors.original_share, rng)
        groups.append(Group(env, builder, EpisodeTracker(env.num_envs), mix))
    return groups


def environment_seed(run_seed: int, first_env: int, restarts: int = 0) -> int:
    """The seed of environment `first_env`; runs with different seeds share none.

    A restarted actor gets other seeds: the old ones may lead to the same crash.
    """
    return (run_seed * 100_003 + restarts * 15_485_863 + first_env) % (2**31 - 2**16)
