"""Groups of environments that an actor steps in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aclearn.config import Config
from aclearn.envs import VectorEnv, make_vector_env
from aclearn.rollout import (
    EpisodeCohorts,
    EpisodeTracker,
    EpsilonGreedy,
    InfoMetrics,
    OrnsteinUhlenbeckNoise,
    UnrollBuilder,
    final_epsilons,
)
from aclearn.types import ActionBatch
from services.actor.policy_mix import PolicyMix
from services.policy.factory import unroll_spec_of
from services.role.seeds import Seeds, Use


@dataclass
class Group:
    """Environments that are stepped together, and their current unroll.

    Attributes:
        seed: of the first reset.
        noise: on the policy's actions, where it is deterministic.
        exploration: gives ε, where its parameters are values of actions.
    """

    env: VectorEnv
    builder: UnrollBuilder
    episodes: EpisodeTracker
    mix: PolicyMix | None = None
    seed: int | None = None
    noise: OrnsteinUhlenbeckNoise | None = None
    exploration: EpsilonGreedy | None = None
    choice: ActionBatch | None = None


def make_groups(
    config: Config,
    cohorts: EpisodeCohorts | None = None,
    info_metrics: InfoMetrics | None = None,
) -> list[Group]:
    """The environments of one actor; `seed_groups` gives them their random numbers.

    Raises:
        EnvironmentFailure: they cannot be made.
    """
    actors = config.actors
    groups = []
    for _ in range(actors.groups):
        env = make_vector_env(
            config.env,
            num_envs=actors.envs_per_group,
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
        groups.append(Group(env, builder, EpisodeTracker(env.num_envs, cohorts, info_metrics)))
    return groups


def seed_groups(groups: Sequence[Group], config: Config, seeds: Seeds) -> None:
    """Give each group of an actor its random numbers and its ε, before the first reset."""
    actors = config.actors
    loss: Any = config.loss  # its keys are those of its way to act
    rows = groups[0].env.num_envs  # in an environment of several agents each has a row
    here = rows * len(groups)
    for g, group in enumerate(groups):
        group.seed = seeds.environments((seeds.index * len(groups) + g) * actors.envs_per_group)
        if loss.acting == "epsilon":
            # actors beyond the configured ones (by hand, of the tuner) begin with ε of the first
            first = seeds.index % actors.processes * here + g * rows
            final = final_epsilons(loss.epsilon, loss.epsilon_exponent, actors.processes * here)
            group.exploration = EpsilonGreedy(final[first : first + rows], loss.epsilon_steps)
        if config.mixes_policies:
            rng = seeds.generator(Use.POLICY_MIX, g)
            group.mix = PolicyMix(
                group.env.num_envs, actors.unroll_length, actors.original_share, rng
            )
        if loss.acting == "noise":
            group.noise = OrnsteinUhlenbeckNoise(
                group.env.num_envs,
                group.env.spec.action.numbers,
                std=loss.noise_std,
                damping=loss.noise_damping,
                rng=seeds.generator(Use.NOISE, g),
            )
