from __future__ import annotations

import logging
import re
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from aclearn.config import EnvConfig
from aclearn.envs import make_vector_env, sync_vector_env
from aclearn.errors import EnvironmentFailure
from aclearn.launch import Interrupted
from aclearn.types import OBSERVATION
from tests.support import space_envs
from tests.support.waiting import DEADLINE_S

ZEROS = np.zeros(2, np.int64)
KINDS = [
    ("raise", "raised"),
    ("exit", "raised"),
    ("interrupt", "raised"),
    ("wrong shape", "observation_shape"),
    ("wrong dtype", "observation_dtype"),
    ("nan observation", "observation_range"),
    ("inf observation", "observation_range"),
    ("nan reward", "reward_range"),
    ("inf reward", "reward_range"),
    ("huge reward", "reward_range"),
]
HANGS = ["exit in a busy loop", "wait for ever", "swallow"]


def play(group, steps):
    for _ in range(steps):
        group.send(ZEROS)
        step = group.recv()
    return step


def assert_env_0_was_made_again_in(step):
    assert step.faulted.tolist() == [True, False]
    assert step.reset.tolist() == [True, False]
    assert step.rewards.tolist() == [0, 2]
    assert not (step.terminated | step.truncated | step.life_lost).any()
    # instance 2 has replaced instance 0; its neighbour has stepped as always
    assert step.observations[OBSERVATION].tolist() == [[2, 0, 0], [1, 0, 2]]


@pytest.mark.parametrize(("fault", "reason"), KINDS)
def test_a_failed_environment_is_made_again_and_its_step_is_marked(
    scripted, make_group, fault, reason
):
    group = make_group(fault=fault, at=2, ends_after=4)
    group.reset()
    assert_env_0_was_made_again_in(play(group, 2))
    assert group.faults == {reason: 1}
    assert [env.closed for env in scripted] == [True, False, False]
    # and continues, one step behind its neighbour
    step = play(group, 1)
    assert step.observations[OBSERVATION].tolist() == [[2, 0, 1], [1, 0, 3]]
    assert not (step.faulted | step.reset).any()


@pytest.mark.parametrize("fault", HANGS)
def test_a_hanging_environment_is_interrupted_and_made_again(scripted, make_group, fault):
    group = make_group(fault=fault, at=2, ends_after=4, step_timeout_s=0.5)
    group.reset()
    started_s = time.monotonic()
    assert_env_0_was_made_again_in(play(group, 2))
    assert 0.5 <= time.monotonic() - started_s < DEADLINE_S
    assert group.faults == {"hung": 1}


@pytest.mark.parametrize(
    ("fault", "reason"), [*KINDS[:7], ("wait for ever", "hung")], ids=lambda word: word
)
def test_a_failure_in_the_first_reset_is_a_fault_like_any_other(
    scripted, make_group, fault, reason
):
    group = make_group(fault=fault, at=0, step_timeout_s=0.5)
    first = group.reset()[OBSERVATION]
    assert first.tolist() == [[2, 0, 0], [1, 0, 0]]
    assert group.faults == {reason: 1}


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


def test_the_replacement_may_fail_too_and_each_failure_counts(scripted, make_group):
    group = make_group(fault="raise", at=2, ends_after=9, faulty=1, max_faults=5)
    group.reset()
    group._group._make = failing_twice(group._group._make)
    step = play(group, 2)
    assert step.faulted.tolist() == [True, False]
    assert group.faults == {"raised": 3}
    assert step.observations[OBSERVATION][0].tolist() == [2, 0, 0]


def test_there_are_signs_of_life_between_any_two_things_that_may_hang(scripted, make_group):
    group = make_group(fault="raise", at=2, ends_after=9, faulty=1, max_faults=5)
    group.reset()
    done = []
    make, scripted[0].close = failing_twice(group._group._make), lambda: done.append("close")

    def record_make():
        done.append("make")
        return make()

    group._group._make = record_make
    group.between_attempts = lambda: done.append("sign")
    play(group, 2)
    first = ["sign", "close", "sign", "make"]
    # the second and third close what the first has closed already
    assert done == [*first * 3, "sign"]  # and the other environments have their time limit again


def test_there_is_a_sign_of_life_after_each_environment_of_a_reset(scripted, make_group):
    group = make_group()
    done = []
    group.between_attempts = lambda: done.append([env.seeds for env in scripted])
    group.reset()
    assert done[-1] == [[1], [2]] and len(done) == 2


def failing_twice(make):
    left = [OSError("no licence"), OSError("no licence")]

    def make_or_fail():
        if left:
            raise left.pop()
        return make()

    return make_or_fail


def test_an_environment_that_is_made_again_gets_a_new_seed_that_the_run_seed_fixes(
    scripted, make_group
):
    def seed_after_fault(seed):
        scripted.clear()
        group = make_group(fault="raise", at=1, seed=seed)
        group.reset()
        play(group, 1)
        return scripted[2].seeds

    assert seed_after_fault(7) == seed_after_fault(7)
    assert seed_after_fault(7) not in ([7], [None])
    assert seed_after_fault(7) != seed_after_fault(8)


def test_one_fault_too_many_ends_the_group_with_the_last_reason_in_one_line(
    scripted, make_group, caplog
):
    caplog.set_level(logging.INFO)
    group = make_group(fault="raise", at=1, faulty=99, max_faults=3)
    group.reset()
    play(group, 1)  # faults 1 and 2
    assert group.faults == {"raised": 2}
    with pytest.raises(EnvironmentFailure) as failure:
        play(group, 1)  # faults 3 and 4
    said = str(failure.value)
    assert (
        "failed 4 times (raised 4) within an hour or in a row, actors.max_env_faults allows 3"
        in said
    )
    where = "in environment 1 of its group at step 1 of its episode: raised: RuntimeError: "
    assert where in said
    assert re.search(r"the dice are lost \[line \d+ of \S*conftest.py, in \w+\]$", said)
    # the log has all calls
    assert "raise RuntimeError" in caplog.text and "Traceback" in caplog.text


def test_only_the_faults_of_the_last_hour_count(scripted, make_group, monkeypatch):
    group = make_group(fault="raise", at=1, faulty=99, max_faults=3)
    now_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr("aclearn.envs.restarting.time", clock)
    group.reset()
    play(group, 1)  # faults 1 and 2
    now_s = 3601.0
    play(group, 1)  # faults 3 and 4, and the first two are forgotten
    assert group.faults == {"raised": 4}
    now_s = 7200.0
    with pytest.raises(
        EnvironmentFailure, match=r"failed 4 times \(raised 4\) within an hour or in a row"
    ):
        play(group, 1)


def test_an_environment_that_never_comes_back_is_given_up_however_slowly_it_fails(
    scripted, make_group
):
    group = make_group(fault="raise", at=0, faulty=99, max_faults=4)
    clock = iter(range(0, 10**6, 3000))  # 50 minutes each: never more than two in an hour
    group._group._clock = lambda: next(clock)
    with pytest.raises(EnvironmentFailure, match=r"failed 5 times \(raised 5\)"):
        group.reset()


def test_a_replacement_that_never_works_does_not_loop_for_ever(scripted, make_group):
    group = make_group(fault="raise", at=0, faulty=99, max_faults=4)
    with pytest.raises(EnvironmentFailure, match=r"failed 5 times \(raised 5\)"):
        group.reset()
    assert len(scripted) == 2 + 4


@pytest.mark.parametrize(
    ("fault", "said"), [("raise", "the dice are lost"), ("exit", "SystemExit")]
)
def test_a_constructor_that_fails_at_the_start_is_reported_at_once(
    scripted, make_group, fault, said
):
    with pytest.raises(EnvironmentFailure, match=rf"(?s)cannot be made.*{said}"):
        make_group(fault=fault, at=-1)


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_spaces_that_cannot_be_read_are_reported_and_the_environments_closed(
    scripted, make_group, monkeypatch, error
):
    def fail(self):
        raise error("no window")

    env_class = type_of_scripted(scripted, make_group)
    scripted.clear()
    space = property(fail, lambda *_: None)
    monkeypatch.setattr(env_class, "observation_space", space, raising=False)
    with pytest.raises(EnvironmentFailure, match=f"cannot be read .{error.__name__}: no window"):
        make_group()
    assert [env.closed for env in scripted] == [True, True]


def test_a_constructor_that_hangs_at_the_start_is_reported_too(scripted, make_group):
    with pytest.raises(EnvironmentFailure, match=r"no answer within 0\.5 s"):
        make_group(fault="wait for ever", at=-1, step_timeout_s=0.5)


def test_those_made_before_the_constructor_failed_are_closed(scripted, make_group, monkeypatch):
    env_class = type_of_scripted(scripted, make_group)
    construct = env_class.__init__

    def fail_on_third(self, **kwargs):
        construct(self, **kwargs)
        if self.number == 2:
            raise RuntimeError("no third one")

    scripted.clear()
    monkeypatch.setattr(env_class, "__init__", fail_on_third)
    with pytest.raises(EnvironmentFailure, match="no third one"):
        make_group(num_envs=4)
    assert [env.closed for env in scripted] == [True, True, False]


def type_of_scripted(scripted, make_group):
    make_group(num_envs=1)
    return type(scripted[0])


@pytest.mark.parametrize("fault", ["raise", "exit", "wait for ever"])
def test_an_environment_that_cannot_be_closed_is_logged_and_left(
    scripted, make_group, caplog, fault
):
    group = make_group(fault=fault, at=-2, faulty=2, step_timeout_s=0.5)
    with caplog.at_level(logging.WARNING):
        group.close()
    assert sum("environment_close_failed" in line for line in caplog.messages) == 2


def test_faults_are_logged_with_their_reason(scripted, make_group, caplog):
    group = make_group(fault="nan reward", at=1)
    group.reset()
    with caplog.at_level(logging.WARNING):
        play(group, 1)
    (line,) = [line for line in caplog.messages if "environment_fault" in line]
    said = "reward is nan, expected a number from -1e+12 to 1e+12"
    assert f"env=0 step=1 reason=reward_range total=1 detail='{said}'" in line


def traces(caplog) -> list[str]:
    return [line for line in caplog.messages if "event=environment_trace" in line]


@pytest.mark.parametrize(("max_faults", "count"), [(0, 1), (4, 2)])
def test_the_log_has_the_trace_of_the_first_fault_and_of_the_last(
    scripted, make_group, caplog, max_faults, count
):
    caplog.set_level(logging.INFO)
    group = make_group(fault="raise", at=0, faulty=99, max_faults=max_faults)
    with pytest.raises(EnvironmentFailure):
        group.reset()
    assert len(traces(caplog)) == count
    assert all("Traceback" in line and "the dice are lost" in line for line in traces(caplog))


def test_the_log_has_the_trace_of_a_constructor_that_fails(scripted, make_group, caplog):
    caplog.set_level(logging.INFO)
    with pytest.raises(EnvironmentFailure):
        make_group(fault="raise", at=-1)
    assert sum("the dice are lost" in line for line in traces(caplog)) == 1


def test_several_environments_may_fail_in_one_step(scripted, make_group):
    group = make_group(fault="raise", at=2, faulty=2, ends_after=9)
    group.reset()
    step = play(group, 2)
    assert step.faulted.tolist() == [True, True]
    assert step.observations[OBSERVATION].tolist() == [[2, 0, 0], [3, 0, 0]]


def test_outside_the_main_thread_a_group_works_without_a_deadline(scripted, make_group):
    results = []

    def work():
        group = make_group(fault="raise", at=2, ends_after=4)
        group.reset()
        results.append(play(group, 2))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
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


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e9])
def test_a_number_that_is_no_action_is_a_fault_of_the_step(number) -> None:
    config = EnvConfig(id="tests.support.space_envs:Reach")
    group = make_vector_env(config, num_envs=3, seed=0, step_timeout_s=60.0, max_faults=2)
    try:
        group.reset()
        good = np.array([[0, 0.0], [1, 0.5], [2, 30.0]], np.float32)
        bad = good.copy()
        bad[1, 1] = number
        for actions, faulted in ((good, False), (bad, True), (good, False)):
            group.send(actions)
            assert group.recv().faulted.tolist() == [False, faulted, False]
        assert group.faults == {"action_range": 1}
        # the episodes of the others go on: they end with the eighth step, the new one later
        for _ in range(5):
            group.send(good)
            step = group.recv()
        assert step.terminated.tolist() == [True, False, True]
        # the action of a reset step is ignored, whatever it is
        group.send(np.full((3, 2), np.nan, np.float32))
        assert group.recv().faulted.tolist() == [False, True, False]
    finally:
        group.close()


class Masked(space_envs.Match):
    """Its third step says `wrong` as the mask of its 3 + 2 choices."""

    def __init__(self, wrong) -> None:
        self.wrong = {"nothing": {}, "short": {"action_mask": [1, 1]}}.get(wrong)
        if wrong == "all closed":
            self.wrong = {"action_mask": [1, 0, 1, 0, 0]}

    def info(self):
        good = {"action_mask": np.array([1, 0, 1, 0, 1])}
        return self.wrong if self.steps == 3 else good


@pytest.mark.parametrize("wrong", ["nothing", "short", "all closed"])
def test_a_mask_that_does_not_fit_is_a_fault(wrong) -> None:
    config = EnvConfig(id=f"{__name__}:Masked", kwargs={"wrong": wrong}, action_mask="info")
    group = make_vector_env(config, num_envs=2, seed=0, step_timeout_s=60.0, max_faults=2)
    try:
        assert group.spec.masked
        group.reset()
        before = group.masks
        assert before.tolist() == [[True, False, True, False, True]] * 2
        for number in range(3):
            group.send(np.array([[0, 1], [2, 1]], np.int32))
            assert group.recv().faulted.tolist() == [number == 2] * 2
            assert group.masks is not before  # they belong to the receiver
        assert group.faults == {"action_mask": 2}
        assert group.masks.tolist() == before.tolist()  # of the new episodes
    finally:
        group.close()


class Silent(space_envs.Gates):
    """`Gates` without a mask at the end of an episode, which may be a cut."""

    def __init__(self, cut=False) -> None:
        self.cut = cut

    def step(self, action):
        shown, reward, ended, _, info = super().step(action)
        return shown, reward, ended and not self.cut, ended and self.cut, info

    def info(self):
        return super().info() if self.steps < 8 else {}


@pytest.mark.parametrize("env", ["tests.support.space_envs:Gates", f"{__name__}:Silent"])
def test_where_an_episode_has_ended_nothing_needs_to_be_allowed(env) -> None:
    config = EnvConfig(id=env, action_mask="info")
    group = make_vector_env(config, num_envs=1, seed=0, step_timeout_s=60.0, max_faults=0)
    try:
        group.reset()
        for _ in range(8):
            group.send(group.masks.argmax(1).astype(np.int32))
            step = group.recv()
        assert step.terminated.all() and group.masks.all()
        group.send(np.zeros(1, np.int32))
        assert group.recv().reset.all() and 1 <= group.masks.sum() <= 2
    finally:
        group.close()


def test_where_an_episode_is_cut_a_mask_is_needed_for_the_value_of_what_is_reached(caplog) -> None:
    config = EnvConfig(id=f"{__name__}:Silent", kwargs={"cut": True}, action_mask="info")
    group = make_vector_env(config, num_envs=1, seed=0, step_timeout_s=60.0, max_faults=1)
    try:
        group.reset()
        for _ in range(8):
            group.send(group.masks.argmax(1).astype(np.int32))
            step = group.recv()
        assert step.faulted.all() and group.faults == {"action_mask": 1}
        assert "missing; only a terminal step needs none" in caplog.text
    finally:
        group.close()


def test_masks_of_numbers_are_refused_and_a_mask_without_a_use_is_named(caplog) -> None:
    config = EnvConfig(id="Pendulum-v1", action_mask="info")
    with pytest.raises(EnvironmentFailure, match=r"env\.action_mask is set, .* nothing to mask"):
        make_vector_env(config, num_envs=1, seed=0, step_timeout_s=60.0, max_faults=0)
    config = EnvConfig(id="tests.support.space_envs:Locks")
    group = make_vector_env(config, num_envs=2, seed=0, step_timeout_s=60.0, max_faults=0)
    group.reset()
    group.close()
    assert group.masks is None and caplog.text.count("event=action_mask_unused") == 1


class Slow(space_envs.Match):
    """Each reset and each step takes a tenth of a second."""

    def _next(self):
        time.sleep(0.1)
        return super()._next()


def test_the_time_limit_is_that_of_a_call_and_not_of_the_group(monkeypatch) -> None:
    monkeypatch.setattr(sync_vector_env, "_PAUSE_AFTER_S", 0.25)
    config = EnvConfig(id=f"{__name__}:Slow")
    group = make_vector_env(config, num_envs=8, seed=0, step_timeout_s=0.5, max_faults=0)
    try:
        group.reset()
        signs = []
        group.between_attempts = lambda: signs.append(time.monotonic())
        for _ in range(2):
            group.send(np.zeros((8, 2), np.int32))
            group.recv()
        # eight tenths a step, of which each third call is followed by a sign of life
        assert len(signs) >= 4 and max(np.diff(signs)) < 0.8
        assert group.faults == {}
    finally:
        group.close()


def test_a_late_call_in_a_slow_group_is_found_by_its_own_limit() -> None:
    config = EnvConfig(id=f"{__name__}:Slow")
    group = make_vector_env(config, num_envs=6, seed=0, step_timeout_s=0.5, max_faults=1)
    try:
        group.reset()
        plain = group._group.envs[4].step
        group._group.envs[4].step = lambda action: time.sleep(60.0) or plain(action)
        group.send(np.zeros((6, 2), np.int32))
        begun = time.monotonic()
        assert group.recv().faulted.tolist() == [False] * 4 + [True, False]
        assert time.monotonic() - begun >= 0.4 + 0.5 and group.faults == {"hung": 1}
    finally:
        group.close()
