"""Environments that are made again, until they fail too often."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace

import pytest

from aclearn.errors import EnvironmentFailure
from tests.aclearn.envs.conftest import ScriptedEnv
from tests.aclearn.envs.test_faults import assert_env_0_was_made_again_in, limit_s, play


def test_a_replacement_may_fail_too_with_signs_of_life_between_any_two_things_that_may_hang(
    scripted, make_group
):
    group = make_group(fault="raise", at=2, ends_after=9, max_faults=5)
    group.reset()
    done, make, left = [], group._group._make, [OSError("no licence"), OSError("no licence")]

    def failing_twice():
        done.append("make")
        if left:
            raise left.pop()
        return make()

    group._group._make, scripted[0].close = failing_twice, lambda: done.append("close")
    group.between_attempts = lambda: done.append("sign")
    step = play(group, 2)
    assert_env_0_was_made_again_in(step)
    assert group.faults == {"raised": 3}
    # the second and third close what the first has closed already
    assert done == [*["sign", "close", "sign", "make"] * 3, "sign"]


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
    assert all(seed_after_fault(seed)[0] < 2**31 - 2**16 for seed in range(20))  # of 31 bits
    assert seed_after_fault(7) != seed_after_fault(8)


def traces(caplog) -> list[str]:
    return [line for line in caplog.messages if "event=environment_trace" in line]


def test_one_fault_too_many_ends_the_group_with_the_last_reason_in_one_line(
    scripted, make_group, caplog
):
    caplog.set_level(logging.INFO)
    group = make_group(fault="raise", at=1, faulty=99, max_faults=3)
    group.reset()
    assert play(group, 1).faulted.all()  # faults 1 and 2
    assert group.faults == {"raised": 2}
    with pytest.raises(EnvironmentFailure) as failure:
        play(group, 1)  # faults 3 and 4
    said = str(failure.value)
    counts = "failed 4 times (raised 4) within an hour or in a row, actors.max_env_faults allows 3"
    where = "in environment 1 of its group at step 1 of its episode: raised: RuntimeError: "
    assert counts in said and where in said
    assert re.search(r"the dice are lost \[line \d+ of \S*conftest.py, in \w+\]$", said)
    # the log has the trace of the first fault and of the last, with all calls
    assert len(traces(caplog)) == 2
    assert all("raise RuntimeError" in line and "Traceback" in line for line in traces(caplog))


def test_only_the_faults_of_the_last_hour_count(scripted, make_group, monkeypatch):
    group = make_group(fault="raise", at=1, faulty=99, max_faults=3)
    now_s = 0.0
    monkeypatch.setattr("aclearn.envs.restarting.time", SimpleNamespace(monotonic=lambda: now_s))
    group.reset()
    play(group, 1)  # faults 1 and 2
    now_s = 3601.0
    play(group, 1)  # faults 3 and 4, and the first two are forgotten
    assert group.faults == {"raised": 4}
    now_s = 7200.0
    with pytest.raises(EnvironmentFailure, match=r"failed 4 times \(raised 4\) within an hour or"):
        play(group, 1)


def test_an_environment_that_never_comes_back_is_given_up_however_slowly_it_fails(
    scripted, make_group, monkeypatch
):
    clock = iter(range(0, 10**6, 3000))  # 50 minutes each: never more than two in an hour
    monkeypatch.setattr(
        "aclearn.envs.restarting.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    group = make_group(fault="raise", at=0, faulty=99, max_faults=4)
    with pytest.raises(EnvironmentFailure, match=r"failed 5 times \(raised 5\)"):
        group.reset()
    assert len(scripted) == 2 + 4


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", "the dice are lost"),
        ("exit", "SystemExit"),
        ("wait for ever", r"no answer within 0\.5 s"),
    ],
)
def test_a_constructor_that_fails_is_told_at_once_and_those_made_before_are_closed(
    scripted, make_group, caplog, monkeypatch, fault, said
):
    caplog.set_level(logging.INFO)
    construct = ScriptedEnv.__init__

    def fail_on_third(self, **kwargs):
        construct(self, **kwargs | {"at": -1 if len(scripted) == 2 else 2, "faulty": 3})

    monkeypatch.setattr(ScriptedEnv, "__init__", fail_on_third)
    with pytest.raises(EnvironmentFailure, match=rf"(?s)cannot be made.*{said}"):
        make_group(fault=fault, num_envs=4, step_timeout_s=limit_s(fault))
    assert [env.closed for env in scripted] == [True, True, False]
    assert len(traces(caplog)) == 1 and re.search(said, traces(caplog)[0])


@pytest.mark.parametrize("fault", ["raise", "exit", "wait for ever"])
def test_an_environment_that_cannot_be_closed_is_logged_and_left(
    scripted, make_group, caplog, fault
):
    make_group(fault=fault, at=-2, faulty=2, step_timeout_s=limit_s(fault)).close()
    assert sum("environment_close_failed" in line for line in caplog.messages) == 2


def test_faults_are_logged_with_their_reason(scripted, make_group, caplog):
    group = make_group(fault="nan reward", at=1)
    group.reset()
    play(group, 1)
    (line,) = [line for line in caplog.messages if "environment_fault" in line]
    said = "reward is nan, expected a number from -1e+12 to 1e+12"
    assert f"env=0 step=1 reason=reward_range total=1 detail='{said}'" in line
