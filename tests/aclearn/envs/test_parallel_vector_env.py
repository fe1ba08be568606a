"""Environments of several agents: each agent is a row of the group."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from aclearn.config import EnvConfig
from aclearn.envs import read_spec
from aclearn.errors import EnvironmentFailure
from aclearn.rollout import EpisodeTracker, UnrollBuilder, UnrollCounter
from aclearn.types import OBSERVATION, ActionBatch, PolicyVersion, UnrollSpec
from tests.support.agents_env import Relay

RELAY = "tests.support.agents_env:Relay"
E, A = 2, 3


@pytest.fixture
def make_relays(make_group):
    Relay.instances.clear()
    yield partial(make_group, RELAY, num_envs=E, seed=7)
    Relay.instances.clear()


def step_of(group, action=1):
    group.send(np.full(E * A, action))
    return group.recv()


def marks(flags):
    return ["".join(name[0] for name, flag in zip(("r", "g", "b"), row, strict=True) if flag)
            for row in flags.reshape(E, A)]  # fmt: skip


def test_agents_that_come_and_leave_are_rows_that_wait_by_resets(make_relays):
    # Given red in steps 1 to 4, green in 1 and 2, blue in 2 to 4, whose time is then over
    group = make_relays()
    assert (group.num_envs, group.spec.agents) == (E * A, A)
    first = group.reset()[OBSERVATION].reshape(E, A, 4)
    assert first[:, :2].tolist() == [[[e, 0, 0, 0], [e, 0, 1, 0]] for e in range(E)]
    # When two episodes of the environment are played
    rows = []
    for _ in range(10):
        step = step_of(group)
        shown = step.observations[OBSERVATION].reshape(E, A, 4)
        rows.append([marks(step.reset)[1], marks(step.terminated)[1], marks(step.truncated)[1],
                     step.rewards[A:].tolist(), shown[1, :, 3].tolist()])  # fmt: skip
        assert not step.faulted.any()
    # Then: waits, ends, truncations, rewards, and the steps that are shown (the last while waiting)
    episode = [
        ["b", "", "", [1, 10, 0], [1, 1, 1]],
        ["", "g", "", [2, 20, 200], [2, 2, 2]],
        ["g", "", "", [3, 0, 300], [3, 2, 3]],
        ["g", "r", "b", [4, 0, 400], [4, 2, 4]],
        ["rgb", "", "", [0, 0, 0], [0, 0, 0]],
    ]
    assert rows == episode * 2
    # and only agents with an episode get an action
    acted = [sorted(actions) for actions in Relay.instances[1].received]
    assert (
        acted == [["green", "red"], ["blue", "green", "red"], ["blue", "red"], ["blue", "red"]] * 2
    )
    assert Relay.instances[1].seeds == [7 + 1, None, None]


def test_each_agents_episode_has_its_own_return_and_its_steps_are_learned_once(make_relays):
    group = make_relays()
    tracker, counter, T = EpisodeTracker(group.num_envs), UnrollCounter(), 5
    builder = UnrollBuilder(
        UnrollSpec(group.spec, T), num_envs=E * A, clip_rewards=False, life_loss_ends=False
    )
    builder.begin(group.reset())
    ended = []
    for _ in range(2 * T):
        step = step_of(group)
        ended += tracker.update(step)
        log_prob = np.zeros(E * A, np.float32)
        actions = np.ones(E * A, np.int32)
        builder.add(ActionBatch(actions, log_prob, PolicyVersion(1, 0), ("none",)), step)
        if builder.full:
            # red 4, green 2, blue 3 of each environment's 5 steps; the last resets all
            unroll = builder.take(counter)
            assert unroll.valid.sum(axis=0).tolist() == [4, 2, 3] * E
    assert counter.env_steps == 2 * E * (4 + 2 + 3)
    # 1+2+3+4, 10+20, and 200+300+400
    returns = [(episode.return_, episode.length) for episode in ended]
    assert sorted(returns) == sorted([(10.0, 4), (30.0, 2), (900.0, 3)] * 2 * E)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise", "raised"),
        ("nan observation", "observation_range"),
        ("nan reward", "reward_range"),
        ("agent missing", "agents"),
        ("agent leaves", "agents"),
        ("agent unknown", "agents"),
    ],
)
def test_a_failure_drops_the_episodes_of_all_agents_of_its_environment(make_relays, fault, reason):
    group = make_relays(fault=fault, at=3)
    group.reset()
    steps = [step_of(group) for _ in range(4)]
    assert group.faults == {reason: 1}
    failed = steps[2]
    assert marks(failed.faulted) == ["rgb", ""]
    assert marks(failed.reset) == ["rgb", "g"]
    assert failed.rewards[:A].tolist() == [0, 0, 0]
    # instance 2 has replaced instance 0 and is one step behind
    assert steps[3].observations[OBSERVATION][0].tolist() == [2, 0, 0, 1]
    assert marks(steps[3].reset) == ["b", "g"]
    assert not steps[3].faulted.any()


@pytest.mark.parametrize("space", ["observation_space", "action_space"])
def test_a_space_that_a_reset_changes_is_a_fault_of_its_environment(make_relays, space):
    group = make_relays(fault=space)
    group.reset()
    faulted = [marks(step_of(group).faulted) for _ in range(6)]
    assert faulted == [["", ""]] * 4 + [["rgb", ""]] + [["", ""]]  # the fifth step is the reset
    assert group.faults == {space: 1}


@pytest.mark.parametrize(("fault", "reason"), [("raise", "raised"), ("nobody", "agents")])
def test_a_failure_in_the_first_reset_is_a_fault(make_relays, fault, reason):
    group = make_relays(fault=fault, at=0)
    assert group.reset()[OBSERVATION][0].tolist() == [2, 0, 0, 0]
    assert group.faults == {reason: 1}


def test_numbers_that_no_agent_can_play_are_a_fault_of_its_environment(make_group):
    group = make_group("tests.support.agents_env:Steer")
    group.reset()
    group.send(np.array([[0.5], [-0.5], [np.nan], [0.5]], np.float32))
    assert group.recv().faulted.tolist() == [False, False, True, True]
    assert group.faults == {"action_range": 1}


def test_masks_are_those_of_each_agents_info_and_not_those_of_a_failed_episode(make_relays):
    group = make_relays(action_mask="info", fault="nan reward", at=3)
    group.reset()
    allowed = [[t % 3 != choice for choice in range(3)] for t in range(5)]
    # blue waits, and all is allowed
    assert group.masks[:A].tolist() == [allowed[0], allowed[0], [True] * 3]
    step_of(group)
    assert group.masks[:A].tolist() == [allowed[1]] * 3
    step_of(group)
    assert marks(step_of(group).faulted) == ["rgb", ""]
    assert group.masks[:A].tolist() == [allowed[0], allowed[0], [True] * 3]


@pytest.mark.parametrize(
    ("differ", "said"),
    [
        ("observations", r"observations differ: Box\(.*\(4,\).* of red, Box.*\(5,\).* of blue"),
        ("actions", r"actions differ: Discrete\(3\) of red, Discrete\(4\) of blue"),
    ],
)
def test_agents_with_different_spaces_are_refused_by_name(make_relays, differ, said):
    with pytest.raises(EnvironmentFailure, match=said):
        make_relays(spaces_differ=differ)


class Nameless(Relay):
    def __init__(self):
        super().__init__()
        del self.possible_agents


class OneByOne:
    """As PettingZoo's AECEnv, whose agents take turns."""

    def agent_iter(self):
        return iter(())


def test_environments_without_possible_agents_and_with_turns_are_refused():
    with pytest.raises(EnvironmentFailure, match="possible_agents are missing"):
        read_spec(EnvConfig(id=f"{__name__}:Nameless"))
    with pytest.raises(EnvironmentFailure, match=r"ParallelEnv; use its parallel_env$"):
        read_spec(EnvConfig(id=f"{__name__}:OneByOne"))


def test_a_real_environment_goes_as_in_a_plain_loop(make_group):
    mpe = pytest.importorskip("mpe2.simple_spread_v3")
    plain = mpe.parallel_env(N=2, max_cycles=6)
    group = make_group(
        "mpe2.simple_spread_v3:parallel_env", num_envs=1, seed=3, N=2, max_cycles=6
    )  # fmt: skip
    shown, _ = plain.reset(seed=3)
    rows = group.reset()[OBSERVATION]
    rng, ends = np.random.default_rng(0), 0
    for _ in range(20):
        np.testing.assert_array_equal(rows, np.stack([shown[a] for a in plain.possible_agents]))
        actions = rng.integers(5, size=2)
        over = not plain.agents
        if over:
            shown, rewards = plain.reset()[0], dict.fromkeys(plain.possible_agents, 0.0)
        else:
            taken = dict(zip(plain.possible_agents, actions.tolist(), strict=True))
            shown, rewards, _, cut, _ = plain.step(taken)
            ends += all(cut.values())
        group.send(actions)
        step = group.recv()
        rows = step.observations[OBSERVATION]
        np.testing.assert_array_equal(
            step.rewards, np.float32([rewards[a] for a in plain.possible_agents])
        )
        assert step.reset.all() == over
    assert ends == 3
    plain.close()
