"""Groups of environments that an actor steps in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aclearn.config import Config
from aclearn.envs import VectorEnv, make_policy_envs
from aclearn.rollout import (
    EpisodeCohorts,
    EpisodeTracker,
    EpsilonGreedy,
    InfoMetrics,
    OrnsteinUhlenbeckNoise,
    UnrollBuilder,
    final_epsilons,
)
from aclearn.types import DEFAULT_POLICY, ActionBatch
from services.actor.policy_mix import PolicyMix
from services.policy.factory import unroll_spec_of
from services.role.seeds import Seeds, Use


@dataclass
class Group:
    """The agents of one policy in environments that step together, and their current unroll.

    Attributes:
        builder: None for a policy that does not learn.
        seed: of the first reset.
        noise: on the policy's actions, where it is deterministic and learns.
        exploration: gives ε, where its parameters are values of actions; 0 if it does not learn.
        is_last: whether it is the last one of these environments.
    """

    env: VectorEnv
    builder: UnrollBuilder | None
    episodes: EpisodeTracker
    mix: PolicyMix | None = None
    seed: int | None = None
    noise: OrnsteinUhlenbeckNoise | None = None
    exploration: EpsilonGreedy | None = None
    choice: ActionBatch | None = None
    policy: str = DEFAULT_POLICY
    is_last: bool = True


def make_groups(
    config: Config,
    cohorts: Mapping[str, EpisodeCohorts] | None = None,
    info_metrics: InfoMetrics | None = None,
    *,
    index: int = 0,
) -> list[Group]:
    """The environments of one actor; `seed_groups` gives them their random numbers.

    Args:
        cohorts: policy → where its episodes are counted.
        index: number of the actor.

    Raises:
        ConfigError: agents do not fit the policies.
        EnvironmentFailure: they cannot be made.
    """
    actors, learning = config.actors, config.learning_policies()
    groups = []
    for g in range(actors.groups):
        envs = make_policy_envs(
            config.env,
            config.patterns,
            num_envs=actors.envs_per_group,
            step_timeout_s=actors.step_timeout_s,
            max_faults=actors.max_env_faults,
            threads=actors.emulator_threads,
        )
        for policy, env in envs.items():
            builder = None
            if policy in learning:
                builder = UnrollBuilder(
                    unroll_spec_of(config.of_policy(policy), env.spec, policy),
                    num_envs=env.num_envs,
                    clip_rewards=config.env.clip_rewards,
                    life_loss_ends=config.env.life_loss_ends,
                    actor=index,
                    first_row=g * env.num_envs,
                )
            its = None if cohorts is None else cohorts[policy]
            episodes = EpisodeTracker(env.num_envs, its, info_metrics)
            last = policy == list(envs)[-1]
            groups.append(Group(env, builder, episodes, policy=policy, is_last=last))
    return groups


def seed_groups(groups: Sequence[Group], config: Config, seeds: Seeds) -> None:
    """Give each group of an actor its random numbers and its ε, before the first reset."""
    for place, policy in enumerate(config.policy_names()):
        its = [group for group in groups if group.policy == policy]
        which = (place,) if config.policies else ()
        _seed_policy(its, config.of_policy(policy), seeds, which)


def _seed_policy(
    groups: Sequence[Group], config: Config, seeds: Seeds, which: tuple[int, ...]
) -> None:
    actors = config.actors
    loss: Any = config.loss  # its keys are those of its way to act
    rows = groups[0].env.num_envs  # in an environment of several agents each has a row
    here = rows * len(groups)
    for g, group in enumerate(groups):
        # of the same environments the same
        group.seed = seeds.environments((seeds.index * len(groups) + g) * actors.envs_per_group)
        if loss.acting == "epsilon":
            # actors beyond the configured ones (by hand, of the tuner) begin with ε of the first
            first = seeds.index % actors.processes * here + g * rows
            final = final_epsilons(loss.epsilon, loss.epsilon_exponent, actors.processes * here)
            group.exploration = EpsilonGreedy(final[first : first + rows], loss.epsilon_steps)
            if group.builder is None:  # a fixed opponent takes its best action in every step
                group.exploration = EpsilonGreedy(np.zeros(rows, np.float32), 0)
        if config.mixes_policies:
            rng = seeds.generator(Use.POLICY_MIX, g, *which)
            group.mix = PolicyMix(
                group.env.num_envs, actors.unroll_length, actors.original_share, rng
            )
        if loss.acting == "noise" and group.builder is not None:
            group.noise = OrnsteinUhlenbeckNoise(
                group.env.num_envs,
                group.env.spec.action.numbers,
                std=loss.noise_std,
                damping=loss.noise_damping,
                rng=seeds.generator(Use.NOISE, g, *which),
            )
