"""The actor's loop: turns of groups, waits for actions and for room, accounts at each point."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from aclearn.rollout import EpisodeCohorts, EpisodeTracker, UnrollBuilder
from aclearn.telemetry import WaitMeter
from aclearn.types import OBSERVATION, ActionBatch, EnvStep, PolicyVersion, UnrollSpec
from services.actor.core import Actor, Player
from services.actor.env_groups import Group
from services.actor.policy_mix import PolicyMix
from services.role.loop import MonitoredRole
from tests.support.env_specs import plain_spec

B, T = 2, 3
SPEC = plain_spec((1,), "float32", 100)


class Scripted:
    """An actor with scripted environments, answers and room, and a record of its actions.

    Group g's environments show 100·g + t after t steps and give t as reward. Answer number n of a
    group is action n with n in the policy's state.

    Args:
        groups: number of groups.
        ends: group → steps, from 1, at which the episode of its first environment ends.
    """

    def __init__(self, groups: int = 1, ends: dict[int, set[int]] | None = None) -> None:
        self.did: list[tuple] = []
        self.answered: set[int] = set(range(groups))  # groups whose actions are ready
        self.room = True
        self.tried: list[tuple[int, object]] = []  # unrolls, including those without room
        self.sent: list[object] = []
        self.asked: list[tuple[int, float, tuple]] = []  # group, observation, state
        self.waits: list[float] = []
        self.original: list[np.ndarray | None] = []
        self.held: list[bool] = []
        self.ends = ends or {}
        self.cohorts = EpisodeCohorts(lambda: float(len(self.sent)))
        self.groups = [self._group(g) for g in range(groups)]
        self.actions = SimpleNamespace(
            request=self._request,
            take=self._take,
            poll=lambda: self.did.append(("look",)),
            gauges=dict,
            hold_original=self.held.append,
            has_own_state=False,
            close=lambda: self.did.append(("close",)),
        )
        self.sender = SimpleNamespace(
            send=self._send, poll=lambda *_: None, gauges=dict, waits=False
        )
        self.actor = Actor(
            self.groups,
            {"default": Player(self.actions, self.cohorts)},
            sender=self.sender,
            meter=WaitMeter(),
        )

    def steps(self, count: int, timeout_s: float = 0.0) -> list[tuple]:
        """The actor's actions in this many steps, without its polls for newer weights."""
        del self.did[:]
        for _ in range(count):
            self.actor.step(timeout_s)
        return [each for each in self.did if each != ("look",)]

    def _group(self, g: int) -> Group:
        env = SimpleNamespace(at=0, faults={}, num_envs=B, masks=None, spec=SPEC)

        def shown():
            return {OBSERVATION: np.full((B, 1), 100 * g + env.at, np.float32)}

        def reset(seed):
            self.did.append(("reset", g))
            return shown()

        def send(actions) -> None:
            self.did.append(("act", g, *actions.tolist()))

        def recv() -> EnvStep:
            self.did.append(("step", g))
            env.at += 1
            none = np.zeros(B, np.bool_)
            first, ends = np.arange(B) == 0, self.ends.get(g, set())
            starts = first & (env.at - 1 in ends)
            rewards = np.where(starts, 0, env.at).astype(np.float32)
            return EnvStep(shown(), rewards, first & (env.at in ends), none, none, starts, none)

        env.reset, env.send, env.recv = reset, send, recv
        builder = UnrollBuilder(
            UnrollSpec(SPEC, T), num_envs=B, clip_rewards=False, life_loss_ends=False
        )
        return Group(env, builder, EpisodeTracker(B, self.cohorts))

    def _request(self, group, given, original) -> None:
        self.original.append(original)
        self.asked.append((group, given.observations[OBSERVATION][0, 0], given.state))

    def _take(self, group, timeout_s) -> ActionBatch | None:
        if group not in self.answered:
            self.waits.append(timeout_s)
            return None
        number = sum(g == group for g, *_ in self.asked)
        (memory,) = state if (state := self.asked[-1][2]) else (np.zeros((B, 1), np.float32),)
        actions = np.full(B, number, np.int32)
        log_prob = np.zeros(B, np.float32)
        return ActionBatch(actions, log_prob, PolicyVersion(0, number), next_state=(memory + 1,))

    def _send(self, sequence, unrolls, timeout_s) -> bool:
        [unroll] = unrolls
        self.tried.append((sequence, unroll))
        if self.room:
            self.did.append(("ship", sequence))
            self.sent.append(unroll)
        else:
            self.waits.append(timeout_s)
        return self.room


def test_while_one_group_s_environments_step_the_others_act() -> None:
    scripted = Scripted(groups=3)
    assert scripted.steps(1) == [("reset", 0), ("reset", 1), ("reset", 2), ("act", 0, 1, 1)]
    assert scripted.steps(2) == [("act", 1, 1, 1), ("act", 2, 1, 1)]
    assert scripted.steps(3) == [("step", 0), ("step", 1), ("step", 2)]
    assert scripted.steps(3) == [("act", 0, 2, 2), ("act", 1, 2, 2), ("act", 2, 2, 2)]
    asked = [(group, shown) for group, shown, _ in scripted.asked]
    assert asked == [(0, 0), (1, 100), (2, 200), (0, 1), (1, 101), (2, 201)]


def test_where_actions_are_not_there_all_wait_and_each_is_taken_once() -> None:
    scripted = Scripted(groups=2)
    scripted.answered = {0}
    assert scripted.steps(1)[-1] == ("act", 0, 1, 1)
    assert scripted.steps(5, timeout_s=0.25) == []  # only group 1 has its turn
    assert scripted.waits == [0.25] * 5
    assert scripted.did == [("look",)] * 5  # it polls for weights, or answers, meanwhile
    scripted.answered = {0, 1}
    assert scripted.steps(3) == [("act", 1, 1, 1), ("step", 0), ("step", 1)]
    acted = [each for _ in range(9) for each in scripted.steps(1) if each[0] == "act"]
    assert acted == [("act", g, n, n) for g, n in [(0, 2), (1, 2), (0, 3), (1, 3), (0, 4)]]


def test_an_unroll_that_waits_for_room_is_sent_once_and_the_environments_wait_meanwhile() -> None:
    scripted = Scripted(groups=2)
    scripted.room = False
    scripted.steps(2 * 2 * T - 1)  # the last of the first group's unroll
    assert scripted.did[-1] == ("step", 0)
    [(sequence, unroll)] = scripted.tried
    assert scripted.steps(4, timeout_s=0.5) == []
    assert scripted.did == []  # no weights are fetched before they are used
    assert scripted.waits == [0.0] + [0.5] * 4
    assert [(n, u is unroll) for n, u in scripted.tried] == [(1, True)] * 5 and sequence == 1
    scripted.room = True
    assert scripted.steps(1) == [("ship", 1)]
    assert scripted.steps(1) == [("step", 1), ("ship", 2)]  # its own turn, and at once
    assert scripted.steps(1) == [("act", 0, 4, 4)]
    assert [id(each) for each in scripted.sent] == [id(each) for _, each in scripted.tried[-2:]]
    first, second = scripted.sent
    np.testing.assert_array_equal(first.observations[OBSERVATION][:, 0, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(second.observations[OBSERVATION][:, 1, 0], [100, 101, 102, 103])
    np.testing.assert_array_equal(first.actions, [[1, 1], [2, 2], [3, 3]])
    assert (first.env_steps_before, second.env_steps_before) == (0, T * B)


def test_noise_is_on_what_the_environments_take_and_begins_with_each_episode() -> None:
    scripted, started = Scripted(ends={0: {1}}), []
    scripted.groups[0].noise = SimpleNamespace(
        explore=lambda choice: choice._replace(actions=choice.actions + 50),
        begin=lambda rows: started.append(rows.tolist()),
    )
    taken = [each[2:] for _ in range(2 * T) for each in scripted.steps(1) if each[0] == "act"]
    assert taken == [(51, 51), (52, 52), (53, 53)]
    [unroll] = scripted.sent
    np.testing.assert_array_equal(unroll.actions, taken)
    assert started == [[False, False], [True, False], [False, False]]


def test_steps_and_episodes_are_counted_when_they_are_taken_and_told_once() -> None:
    scripted = Scripted(ends={0: {2, 7}})
    scripted.room = False
    steps, told, cohorts = [], [], []
    for turn in range(2 * 9 + 3):
        scripted.room = turn > 8
        scripted.steps(1)
        heartbeat = scripted.actor.heartbeat()
        assert heartbeat.counters["env_steps"] == scripted.actor.env_steps
        steps.append(scripted.actor.env_steps)
        told += zip(heartbeat.episode_returns, heartbeat.episode_policies, strict=True)
        cohorts += heartbeat.cohorts
    # two for a step, one where the first environment was reset in it; from the sixth turn to the
    # ninth the first unroll waits
    expected = [0, 2, 2, 4, 4] + [5] * 4 + [5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 14, 14]
    assert steps == expected
    assert told == [(1 + 2, "original"), (4 + 5 + 6 + 7, "original")]
    assert heartbeat.counters["episodes"] == 2
    # the second environment's episode began with the first one's, and goes on
    assert cohorts == []
    assert "predictions" not in heartbeat.counters  # the predictor reports them


def test_the_share_is_of_episodes_where_another_policy_would_forget_them() -> None:
    scripted = Scripted(ends={0: {4, 10}})
    mix = PolicyMix(B, T, 0.0, np.random.default_rng(1))
    scripted.actor._groups = [replace(scripted.groups[0], mix=mix)]
    scripted.actions.has_own_state = True
    scripted.steps(2)
    mix.compressed_share = 0.0
    scripted.steps(2 * 12)
    # the first environment shows its next episode after step 5; the other one's goes on
    assert [each.tolist() for each in scripted.original] == (
        [[False, False]] * 5 + [[True, False]] * 9
    )


def test_the_share_of_unrolls_is_followed_from_the_next_unroll_and_told(caplog) -> None:
    caplog.set_level("INFO")
    scripted = Scripted()
    mix = PolicyMix(B, T, 0.0, np.random.default_rng(1))
    scripted.actor = Actor(
        [replace(scripted.groups[0], mix=mix)],
        {"default": Player(scripted.actions, scripted.cohorts)},
        sender=scripted.sender,
        meter=WaitMeter(),
    )
    assert scripted.actor.heartbeat().gauges["compressed_share"] == 1.0
    for share in (1.0, 0.0, 0.0):
        scripted.actor.set_mix(share)
        scripted.steps(2 * T)
    # at the reset none is held; the share comes in the second unroll and holds for the third
    assert scripted.held == [False, True]
    assert [bool(each.any()) for each in scripted.original] == [False] * 2 * T + [True] * (T + 1)
    assert scripted.actor.heartbeat().gauges["compressed_share"] == 0.0
    assert [text for text in caplog.messages if "compressed_share" in text] == [
        "event=compressed_share before=1 now=0"
    ]


def test_a_policys_memory_goes_on_from_step_to_step_and_is_zero_where_an_episode_starts() -> None:
    scripted = Scripted(ends={0: {3, 5, 9}})
    scripted.steps(2 * 12)
    states = [state[0][:, 0].tolist() for _, _, state in scripted.asked[1:]]
    # after steps 4, 6 and 10 the first environment shows a new episode
    assert states == [[n, k] for k, n in enumerate([1, 2, 3, 0, 1, 0, 1, 2, 3, 0, 1, 2], 1)]
    assert scripted.asked[0][2] == ()


@pytest.mark.parametrize("waits_for", ["actions", "room", "nothing"])
def test_the_end_comes_between_two_steps_also_while_something_is_waited_for(waits_for) -> None:
    scripted, said = Scripted(), []
    goes_on = iter([True] * 9)
    monitor = SimpleNamespace(
        goes_on=lambda meter: next(goes_on, False), leave=lambda: said.append("goodbye")
    )
    role = MonitoredRole(monitor, WaitMeter(), scripted.actor.step, scripted.actor.close)
    scripted.room = waits_for != "room"
    if waits_for == "actions":
        scripted.answered = set()
    assert [role.step(0.0) for _ in range(9)] == [True] * 9
    del scripted.did[:]
    assert not role.step(0.0)
    assert scripted.did == []
    role.close()
    assert (scripted.did, said) == ([("close",)], ["goodbye"])
    assert len(scripted.sent) == (waits_for == "nothing")
    taken = {"actions": 0, "room": T, "nothing": 9 // 2}[waits_for]
    assert scripted.actor.env_steps == taken * B
