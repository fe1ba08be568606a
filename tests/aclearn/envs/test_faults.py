"""Environments that raise, hang or break their contract: counted by reason, and made again."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from aclearn.envs import sync_vector_env
from aclearn.envs.deadline import StepDeadline
from aclearn.errors import EnvironmentFailure
from aclearn.launch import Interrupted, install_stop_signals
from aclearn.types import OBSERVATION
from tests.aclearn.envs.conftest import ScriptedEnv
from tests.support import space_envs
from tests.support.waiting import DEADLINE_S

KINDS = {
    "raise": "raised",
    "exit": "raised",
    "interrupt": "raised",
    "wrong shape": "observation_shape",
    "wrong dtype": "observation_dtype",
    "nan observation": "observation_range",
    "inf observation": "observation_range",
    "nan reward": "reward_range",
    "inf reward": "reward_range",
    "huge reward": "reward_range",
    "exit in a busy loop": "hung",
    "wait for ever": "hung",
    "swallow": "hung",
}


def limit_s(fault: str) -> float:
    """A short limit for what hangs only: the machine may be busy."""
    return 0.5 if KINDS[fault] == "hung" else 20.0


def play(group, steps):
    for _ in range(steps):
        group.send(np.zeros(2, np.int64))
        step = group.recv()
    return step


def assert_env_0_was_made_again_in(step):
    assert step.faulted.tolist() == step.reset.tolist() == [True, False]
    assert step.rewards.tolist() == [0, 2]
    assert not (step.terminated | step.truncated | step.life_lost).any()
    # instance 2 has replaced instance 0; its neighbour has stepped as always
    assert step.observations[OBSERVATION].tolist() == [[2, 0, 0], [1, 0, 2]]


@pytest.mark.parametrize("fault", KINDS)
def test_a_failed_environment_is_made_again_and_its_step_is_marked(scripted, make_group, fault):
    group = make_group(fault=fault, at=2, ends_after=4, step_timeout_s=limit_s(fault))
    group.reset()
    started_s = time.monotonic()
    with install_stop_signals():  # as in a role, where no Ctrl-C is a KeyboardInterrupt
        step = play(group, 2)
    assert_env_0_was_made_again_in(step)
    assert KINDS[fault] != "hung" or 0.5 <= time.monotonic() - started_s < DEADLINE_S
    assert group.faults == {KINDS[fault]: 1}
    assert [env.closed for env in scripted] == [True, False, False]
    # and continues, one step behind its neighbour
    step = play(group, 1)
    assert step.observations[OBSERVATION].tolist() == [[2, 0, 1], [1, 0, 3]]
    assert not (step.faulted | step.reset).any()


@pytest.mark.parametrize("fault", ["raise", "exit", "wrong shape", "nan observation", "swallow"])
def test_a_failure_in_the_first_reset_is_a_fault_like_any_other(scripted, make_group, fault):
    group = make_group(fault=fault, at=0, step_timeout_s=limit_s(fault))
    assert group.reset()[OBSERVATION].tolist() == [[2, 0, 0], [1, 0, 0]]
    assert group.faults == {KINDS[fault]: 1}


def test_a_failure_in_the_reset_between_episodes_does_not_touch_the_finished_one(
    scripted, make_group
):
    group = make_group(ends_after=2)
    group.reset()
    assert play(group, 2).terminated.all()
    scripted[0]._fault, scripted[0]._at = "raise", 0
    step = play(group, 1)
    assert step.reset.all()
    assert step.faulted.tolist() == [True, False]
    assert step.observations[OBSERVATION].tolist() == [[2, 0, 0], [1, 1, 0]]


def test_there_is_a_sign_of_life_after_each_environment_of_a_reset(scripted, make_group):
    group, done = make_group(), []
    group.between_attempts = lambda: done.append([env.seeds for env in scripted])
    group.reset()
    assert done[-1] == [[1], [2]] and len(done) == 2


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_spaces_that_cannot_be_read_are_reported_and_the_environments_closed(
    scripted, make_group, monkeypatch, error
):
    def fail(self):
        raise error("no window")

    space = property(fail, lambda *_: None)
    monkeypatch.setattr(ScriptedEnv, "observation_space", space, raising=False)
    with pytest.raises(EnvironmentFailure, match=f"cannot be read .{error.__name__}: no window"):
        make_group()
    assert [env.closed for env in scripted] == [True, True]


def test_outside_the_main_thread_a_group_works_without_a_deadline(scripted, make_group):
    results = []

    def work():
        group = make_group(fault="raise", at=2, ends_after=4)
        group.reset()
        results.append(play(group, 2))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(DEADLINE_S)
    assert_env_0_was_made_again_in(results[0])


def test_a_ctrl_c_of_the_user_is_no_fault(scripted, make_group):
    group = make_group()
    group.reset()

    def interrupted(action):
        raise Interrupted

    scripted[1].step = interrupted
    with pytest.raises(Interrupted):
        play(group, 1)
    assert group.faults == {}


@pytest.fixture
def default_ctrl_c():
    """Python's own handler, as in a notebook; a shell's background job ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _interrupt(*_, **__):
    signal.raise_signal(signal.SIGINT)


def test_a_ctrl_c_in_a_program_that_plays_is_no_fault(scripted, make_group, default_ctrl_c):
    group = make_group()
    scripted[1].reset = _interrupt
    with pytest.raises(KeyboardInterrupt):
        group.reset()
    del scripted[1].reset
    group.reset()
    scripted[0].step = scripted[0].close = _interrupt
    with pytest.raises(KeyboardInterrupt):
        play(group, 1)
    assert StepDeadline._armed is None
    with pytest.raises(KeyboardInterrupt):
        group.close()
    assert group.faults == {} and scripted[1].closed


def test_a_ctrl_c_while_environments_are_made_closes_those_that_are(
    scripted, make_group, default_ctrl_c, monkeypatch
):
    make = ScriptedEnv.__init__

    def interrupted(env, **kwargs):
        if scripted:
            _interrupt()
        make(env, **kwargs)

    monkeypatch.setattr(ScriptedEnv, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_group()
    assert [env.closed for env in scripted] == [True]


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e9])
def test_a_number_that_is_no_action_is_a_fault_of_the_step(make_group, number) -> None:
    group = make_group("tests.support.space_envs:Reach", num_envs=3)
    group.reset()
    good = np.array([[0, 0.0], [1, 0.5], [2, 30.0]], np.float32)
    bad = good.copy()
    bad[1, 1] = number
    for actions, faulted in ((good, False), (bad, True), *[(good, False)] * 6):
        group.send(actions)
        step = group.recv()
        assert step.faulted.tolist() == [False, faulted, False]
    assert group.faults == {"action_range": 1}
    # the episodes of the others went on: they end with the eighth step, the new one later
    assert step.terminated.tolist() == [True, False, True]
    # the action of a reset step is ignored, whatever it is
    group.send(np.full((3, 2), np.nan, np.float32))
    assert group.recv().faulted.tolist() == [False, True, False]


class Broken(space_envs.Senses):
    """The first one's third observation is wrong, or its second episode has another space."""

    made: list[Broken] = []  # noqa: RUF012 (of the module)

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong if not self.made else ""
        self.made.append(self)
        self.episodes = 0

    def reset(self, **options: Any) -> Any:
        self.episodes += 1
        if self.wrong == "observation_space" and self.episodes == 2:
            inner = self.observation_space.spaces
            self.observation_space = spaces.Dict({**inner, "new": spaces.Box(0, 1)})
        if self.wrong == "action_space" and self.episodes == 2:
            self.action_space = spaces.MultiDiscrete([3, 2, 4])
        return super().reset(**options)

    def shown(self) -> Any:
        shown = super().shown()
        if self.steps == 2 and self.wrong == "a number":
            shown["balance"][1] = np.nan
        elif self.steps == 2 and self.wrong == "a leaf":
            del shown["eyes"]
        return shown


@pytest.mark.parametrize(
    ("wrong", "reason", "said"),
    [
        ("a number", "observation_range", "balance is nan at"),
        ("a leaf", "observation_keys", "expected balance, compass, eyes"),
        ("observation_space", "observation_space", "its space has become balance"),
        (
            "action_space",
            "action_space",
            "become MultiDiscrete([3 2 4]); it was MultiDiscrete([3 2 2",
        ),
    ],
)
def test_a_wrong_leaf_or_space_is_a_fault_and_the_others_go_on(
    make_group, caplog, wrong, reason, said
) -> None:
    Broken.made.clear()
    group = make_group(f"{__name__}:Broken", wrong=wrong, ignore=["note"], max_faults=1)
    group.reset()
    steps = []
    for _ in range(10):
        group.send(np.zeros((2, 3), np.int32))
        steps.append(group.recv())
        assert list(steps[-1].observations) == ["balance", "compass", "eyes.left"]
        assert np.isfinite(steps[-1].observations["balance"]).all()
    at = 8 if wrong.endswith("space") else 1  # the ninth step is the reset
    assert [step.faulted.tolist() for step in steps] == [[n == at, False] for n in range(10)]
    assert group.faults == {reason: 1} and said in caplog.text
    # the new one's first observation is in the batch: a compass has one direction
    assert steps[at].reset[0] and steps[at].observations["compass"][0].sum() == 1.0


class Slow(space_envs.Match):
    """Each reset and each step takes a tenth of a second."""

    def _next(self):
        time.sleep(0.1)
        return super()._next()


def test_the_time_limit_is_that_of_a_call_and_not_of_the_group(make_group, monkeypatch) -> None:
    monkeypatch.setattr(sync_vector_env, "_PAUSE_AFTER_S", 0.25)
    group = make_group(f"{__name__}:Slow", num_envs=8, step_timeout_s=0.5)
    group.reset()
    signs = []
    group.between_attempts = lambda: signs.append(time.monotonic())
    actions = np.zeros((8, 2), np.int32)
    for _ in range(2):
        group.send(actions)
        group.recv()
    # eight tenths a step, of which each third call is followed by a sign of life
    assert len(signs) >= 4 and max(np.diff(signs)) < 0.8
    assert group.faults == {}
    # a late call is found by its own limit
    plain = group._group.envs[4].step
    group._group.envs[4].step = lambda action: time.sleep(60.0) or plain(action)
    group.send(actions)
    begun = time.monotonic()
    assert group.recv().faulted.tolist() == [False] * 4 + [True] + [False] * 3
    assert time.monotonic() - begun >= 0.4 + 0.5 and group.faults == {"hung": 1}
