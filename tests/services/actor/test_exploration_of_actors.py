"""Each environment has its ε, also those of actors beyond the configured ones."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.config import config_from_yaml
from services.actor.env_groups import make_groups, seed_groups
from services.role.seeds import Seeds


def test_a_policy_that_does_not_learn_does_not_explore() -> None:
    config = config_from_yaml(
        "{env: {id: 'resident:tag_gridworld', kwargs: {num_taggers: 2}}, loss: {kind: dqn}, "
        "policies: {tagger: {agents: 'tagger_*'}, runner: {agents: runner_0, learns: false}}, "
        "actors: {groups: 1, envs_per_group: 3}}"
    )
    groups = make_groups(config)
    try:
        seed_groups(groups, config, Seeds(1, 0, index=0))
        found = {group.policy: group.exploration.next().tolist() for group in groups}
    finally:
        for group in groups:
            group.env.close()
    assert found == {"tagger": [1.0] * 6, "runner": [0.0] * 3}


def test_a_deterministic_policy_that_does_not_learn_acts_without_noise() -> None:
    config = config_from_yaml(
        "{env: {id: 'resident:tag_continuous', kwargs: {continuous_actions: true}, "
        "squash_actions: true}, loss: {kind: ddpg, memory: replay}, "
        "policies: {tagger: {agents: 'tagger_*'}, runner: {agents: 'runner_*', learns: false}}, "
        "actors: {groups: 1, envs_per_group: 3}}"
    )
    groups = make_groups(config)
    try:
        seed_groups(groups, config, Seeds(1, 0, index=0))
        noisy = {group.policy: group.noise is not None for group in groups}
    finally:
        for group in groups:
            group.env.close()
    assert noisy == {"tagger": True, "runner": False}


@pytest.mark.parametrize(("index", "like"), [(0, 0), (1, 1), (2, 0), (7, 1)])
def test_an_actor_beyond_the_configured_ones_begins_again_with_the_first(index, like) -> None:
    config = config_from_yaml(
        "{env: {id: CartPole-v1}, loss: {kind: dqn, epsilon: 0.1, epsilon_steps: 0}, "
        "actors: {processes: 2, groups: 2, envs_per_group: 3}}"
    )
    groups = make_groups(config)
    try:
        seed_groups(groups, config, Seeds(1, 0, index=index))
        found = np.concatenate([group.exploration.next() for group in groups])
    finally:
        for group in groups:
            group.env.close()
    # Ape-X: 0.1^(1 + 7 i / 11) of the environments i of two actors
    expected = [0.1 ** (1.0 + 7.0 * (6 * like + i) / 11.0) for i in range(6)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
