"""Environments whose agents have several policies: a group of rows for each policy."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from aclearn.config import EnvConfig
from aclearn.envs import make_policy_envs, read_spec
from aclearn.errors import ConfigError, EnvironmentFailure
from aclearn.types import OBSERVATION, EnvSpec
from tests.support.agents_env import Relay

E = 2
PAIR, ALONE = "pair", "alone"
PATTERNS = {PAIR: ("r*", "green"), ALONE: ("blue",)}


@pytest.fixture
def make_parts():
    Relay.instances.clear()
    made = []

    def make(name="UnevenRelay", patterns=PATTERNS, *, max_faults=3, **kwargs):
        env = EnvConfig(id=f"tests.support.agents_env:{name}", kwargs=kwargs)
        parts = make_policy_envs(
            env, patterns, num_envs=E, seed=7, step_timeout_s=20.0, max_faults=max_faults
        )
        made.extend(parts.values())
        return parts

    yield make
    for part in made:
        part.close()
    Relay.instances.clear()


def reset(parts):
    return {name: part.reset()[OBSERVATION] for name, part in parts.items()}


def step(parts, actions=(1, 3)):
    for part, action in zip(parts.values(), actions, strict=True):
        part.send(np.full(part.num_envs, action))
    return {name: part.recv() for name, part in parts.items()}


def test_each_policy_has_the_rows_of_its_agents_with_their_own_spaces(make_parts):
    parts = make_parts()
    pair, alone = (parts[name].spec for name in (PAIR, ALONE))
    assert [(s.agents, str(s.action)) for s in (pair, alone)] == [
        (2, "3 actions"),
        (1, "4 actions"),
    ]
    assert [parts[name].num_envs for name in (PAIR, ALONE)] == [2 * E, E]
    shown = reset(parts)
    # instance, episode, place, step: red and green of each environment
    assert shown[PAIR].tolist() == [[e, 0, place, 0] for e in range(E) for place in (0, 1)]
    assert shown[ALONE].tolist() == [[0] * 5] * E  # blue has not come yet
    rows = []
    for _ in range(5):
        each = step(parts)
        rows.append([(each[name].rewards.tolist(), each[name].reset.tolist(),
                      (each[name].terminated | each[name].truncated).tolist())
                     for name in (PAIR, ALONE)])  # fmt: skip
    none, all_ = [False] * 2, [True] * 2
    both = E * 2 * [False]
    assert rows == [
        [([1, 10] * E, both, both), ([0] * E, all_, none)],
        [([2, 20] * E, both, [False, True] * E), ([200] * E, none, none)],
        # green has died: its row waits while red, of the same policy, goes on
        [([3, 0] * E, [False, True] * E, both), ([300] * E, none, none)],
        [([4, 0] * E, [False, True] * E, [True, False] * E), ([400] * E, none, all_)],
        # all are gone: the environments are reset as a whole
        [([0, 0] * E, [True] * 4, both), ([0] * E, all_, none)],
    ]
    # each agent got the action of its own policy
    assert Relay.instances[0].received[1] == {"red": 1, "green": 1, "blue": 3}


def test_the_environments_step_when_every_policy_has_sent(make_parts):
    parts = make_parts()
    reset(parts)
    parts[PAIR].send(np.ones(2 * E, np.int32))
    with pytest.raises(RuntimeError, match="without a send"):
        parts[PAIR].recv()
    assert Relay.instances[0].received == []
    parts[ALONE].send(np.ones(E, np.int32))
    assert parts[ALONE].recv().observations[OBSERVATION].shape == (E, 5)
    with pytest.raises(ValueError, match="expected 0 to 3"):
        parts[ALONE].send(np.full(E, 4))


def test_a_fault_of_one_agent_names_it_and_drops_the_episodes_of_every_policy(make_parts, caplog):
    caplog.set_level(logging.WARNING)
    parts = make_parts(fault="nan observation", at=3)
    reset(parts)
    for _ in range(3):
        each = step(parts)
    assert each[PAIR].faulted.tolist() == [True, True, False, False]
    assert each[ALONE].faulted.tolist() == [True, False]
    assert parts[PAIR].faults == {"observation_range": 1}
    [told] = [text for text in caplog.messages if "environment_fault" in text]
    assert "env=0 step=3 reason=observation_range" in told
    assert "agent red: observation is nan at [0]" in told


def test_too_many_faults_name_environment_step_and_agent(make_parts):
    parts = make_parts(fault="nan observation", at=3, max_faults=0)
    reset(parts)
    with pytest.raises(EnvironmentFailure, match=r"environment 0 .* step 3 .*agent red: obs.* nan"):
        for _ in range(3):
            step(parts)


def test_masks_have_the_width_of_each_policys_actions(make_parts):
    parts = make_policy_envs(
        EnvConfig(id="tests.support.agents_env:Relay", action_mask="info"),
        PATTERNS, num_envs=E, seed=7, step_timeout_s=20.0, max_faults=0,
    )  # fmt: skip
    for part in parts.values():
        part.reset()
    assert parts[PAIR].masks.tolist() == [[False, True, True]] * 4
    assert parts[ALONE].masks.tolist() == [[True] * 3] * E  # it waits, and all is allowed
    parts[PAIR].close()


def test_the_specification_of_all_goes_through_json(make_parts):
    spec = read_spec(EnvConfig(id="tests.support.agents_env:UnevenRelay"), patterns=PATTERNS)
    assert EnvSpec.from_dict(spec.to_dict()) == spec
    assert spec.agents == 3 and spec.agent_names == ("red", "green", "blue")
    parts = spec.by_policy(PATTERNS)
    assert [(name, part.agent_names) for name, part in parts.items()] == [
        (PAIR, ("red", "green")),
        (ALONE, ("blue",)),
    ]
    assert parts[ALONE].observation[OBSERVATION].shape == (5,)


@pytest.mark.parametrize(
    ("name", "patterns", "said"),
    [
        ("UnevenRelay", {"a": ("red",), "b": ("blue",)}, "no policy has green"),
        ("UnevenRelay", {"a": ("*",), "b": ("blue",)}, "agent blue is one of policies.a too"),
        ("UnevenRelay", {"a": ("*",), "b": ("bleu",)}, "no agent matches 'bleu'.*blue"),
        ("UnevenRelay", {"all": ("*",)}, "observations, and these differ: .* of red, .* of blue"),
    ],
)
def test_policies_that_do_not_fit_the_agents_are_refused_by_name(make_parts, name, patterns, said):
    with pytest.raises(ConfigError, match=said):
        make_parts(name, patterns)


def test_an_environment_of_one_agent_has_no_policies():
    with pytest.raises(ConfigError, match="policies: CartPole-v1 has one agent"):
        read_spec(EnvConfig(id="CartPole-v1"), patterns={"a": ("*",)})
