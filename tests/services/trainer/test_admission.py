"""Admitted and dropped unrolls, and the balance of the account after each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aclearn.errors import WireError
from aclearn.learning import StepLedger
from aclearn.types import PolicyVersion
from aclearn.wire import encode
from services.trainer.admission import UnrollAdmission


def _admission(
    tools,
    ledger: StepLedger | None = None,
    *,
    images: bool = False,
    lag: int = 10,
    max_env_steps: int | None = None,
):
    return UnrollAdmission(
        ledger or StepLedger(),
        spec=tools.image_unrolls if images else tools.flat_unrolls,
        max_lag_versions=lag,
        max_env_steps=max_env_steps,
    )


def _numbers(admission) -> tuple[int, int, dict[str, int], int]:
    counters, dropped = admission.counters()
    return (
        counters["env_steps"],
        counters["learned_steps"],
        dropped,
        counters["in_flight_steps"],
    )


def test_an_admitted_unroll_is_in_flight_until_it_is_learned_or_dropped(tools) -> None:
    admission = _admission(tools)
    unroll = tools.make_unroll()
    assert admission.admit("a", 1, unroll, PolicyVersion(0, 0)) is None
    assert _numbers(admission) == (6, 0, {}, 6)
    admission.learned(4)
    admission.dropped("nonfinite_gradient", 2)
    assert _numbers(admission) == (6, 4, {"nonfinite_gradient": 2}, 0)
    assert admission.learned_steps == 4


@pytest.mark.parametrize(("oldest", "reason"), [(20, None), (19, "lag"), (0, "lag"), (30, None)])
def test_lag_counts_from_the_oldest_step_up_to_the_bound(tools, oldest, reason) -> None:
    admission = _admission(tools, lag=10)
    versions = np.array([30, oldest, 30])
    unroll = tools.make_unroll(versions=versions)
    assert admission.admit("a", 1, unroll, PolicyVersion(0, 30)) == reason
    expected = (6, 0, {}, 6) if reason is None else (6, 0, {"lag": 6}, 0)
    assert _numbers(admission) == expected


@pytest.mark.parametrize("generation", [1, 3])
def test_unrolls_of_another_generation_are_dropped_whatever_their_version(
    tools, generation
) -> None:
    admission = _admission(tools)
    unroll = tools.make_unroll(generation=generation, versions=np.full(3, 30))
    assert admission.admit("a", 1, unroll, PolicyVersion(2, 30)) == "old_generation"
    assert _numbers(admission) == (6, 0, {"old_generation": 6}, 0)


def test_only_valid_steps_are_in_flight(tools) -> None:
    valid = np.ones((3, 2), np.bool_)
    valid[1, 0] = False  # an autoreset: no agent step
    valid[0, 1] = False  # dropped by the actor
    unroll = tools.make_unroll(valid=valid, env_steps_after=5, dropped={"env_fault": 1})
    admission = _admission(tools)
    assert admission.admit("a", 1, unroll, PolicyVersion(0, 0)) is None
    assert _numbers(admission) == (5, 0, {"env_fault": 1}, 4)


def test_from_the_unroll_on_that_reaches_the_run_s_length_the_others_are_dropped(tools) -> None:
    ledger = StepLedger()
    admission = _admission(tools, ledger, max_env_steps=7)
    told = []
    for n in range(4):
        if n == 3:  # a later trainer, with this account
            admission = _admission(tools, ledger, max_env_steps=7)
        unroll = tools.make_unroll(env_steps_before=6 * n, env_steps_after=6 * n + 6)
        told.append((admission.admit("a", n, unroll, PolicyVersion(0, 0)), admission.reached))
        assert admission.last  # from the first one on: the actor may have filled another meanwhile
    bound = "max_env_steps"
    assert told == [(None, None), (None, bound), (bound, bound), (bound, bound)]
    assert _numbers(admission) == (24, 0, {bound: 12}, 12)


def test_an_unroll_counts_once(tools) -> None:
    admission = _admission(tools)
    unroll = tools.make_unroll()
    admission.admit("a", 1, unroll, PolicyVersion(0, 0))
    assert admission.admit("a", 1, unroll, PolicyVersion(0, 0)) == "duplicate"
    assert _numbers(admission) == (6, 0, {}, 6)
    assert admission.admit("b", 1, unroll, PolicyVersion(0, 0)) is None  # another process
    assert _numbers(admission) == (12, 0, {}, 12)


def test_unrolls_that_were_lost_are_counted_from_the_gap(tools) -> None:
    admission = _admission(tools)
    admission.admit("a", 1, tools.make_unroll(), PolicyVersion(0, 0))
    later = tools.make_unroll(env_steps_before=18, env_steps_after=24)
    assert admission.admit("a", 4, later, PolicyVersion(0, 0)) is None
    assert _numbers(admission) == (24, 0, {"lost": 12}, 12)


def test_a_lie_about_steps_is_refused_and_counted_nowhere(tools) -> None:
    admission = _admission(tools)
    unroll = tools.make_unroll(env_steps_after=4)  # holds six valid steps
    assert admission.admit("a", 1, unroll, PolicyVersion(0, 0)) == "inconsistent_counter"
    assert _numbers(admission) == (0, 0, {}, 0)


def test_a_well_formed_unroll_passes_the_check_and_counts_nothing(tools) -> None:
    for images in (False, True):
        admission = _admission(tools, images=images)
        admission.check(tools.make_unroll(tools.images if images else tools.flat), "a")
        assert _numbers(admission) == (0, 0, {}, 0)


_BROKEN = {
    "a NaN reward": (
        lambda u: replace(u, rewards=np.full((3, 2), np.nan, np.float32)),
        r"rewards: NaN or beyond 1e\+12",
    ),
    "a huge reward": (
        lambda u: replace(u, rewards=np.full((3, 2), -1.001e12, np.float32)),
        r"rewards: NaN or beyond 1e\+12",
    ),
    "a huge observation": (
        lambda u: replace(u, observations={"observation": np.full((4, 2, 3), 1e13, np.float32)}),
        r"observations.observation: NaN or beyond 1e\+12",
    ),
    "an unknown action": (
        lambda u: replace(u, actions=np.full((3, 2), 4, np.int32)),
        "actions: expected values from 0 to 3",
    ),
    "other observations": (
        lambda u: replace(u, observations={"observation": np.zeros((4, 2, 5), np.float32)}),
        r"observations.observation: expected shape \(4, 2, 3\)",
    ),
    "a mask of another shape": (
        lambda u: replace(u, valid=np.ones((3, 3), np.bool_)),
        r"valid: expected shape \(3, 2\)",
    ),
}


@pytest.mark.parametrize("what", _BROKEN)
def test_a_malformed_unroll_is_refused_with_the_field_and_its_steps_are_dropped(
    tools, what
) -> None:
    break_it, message = _BROKEN[what]
    admission = _admission(tools)
    unroll = break_it(tools.make_unroll())
    with pytest.raises(WireError, match=message) as error:
        admission.check(unroll, "a")
    assert error.value.reason == "bad_unroll"
    assert _numbers(admission) == (0, 0, {}, 0)
    admission.refuse("a", 1, unroll)
    steps = int(unroll.valid.sum())
    counted = (6, 0, {"bad_unroll": 6}, 0) if steps == 6 else (0, 0, {}, 0)  # a lie about steps
    assert _numbers(admission) == counted


@pytest.mark.parametrize(
    ("incarnation", "dropped", "what"),
    [
        ("x" * 49, {}, "incarnation: expected at most 48 bytes"),
        ("x", {"r" * 65: 1}, "dropped: expected at most 64 reasons of 64 bytes"),
        ("x", {str(n): 0 for n in range(65)}, "dropped: expected at most 64 reasons"),
    ],
)
def test_names_that_no_heartbeat_could_carry_are_refused(tools, incarnation, dropped, what) -> None:
    admission, unroll = _admission(tools), replace(tools.make_unroll(), dropped=dropped)
    with pytest.raises(WireError, match=what):
        admission.check(unroll, incarnation)
    admission.refuse(incarnation, 1, unroll)
    assert _numbers(admission) == (0, 0, {}, 0)


def test_the_longest_names_that_are_allowed_fit_into_a_heartbeat(tools) -> None:
    admission = _admission(tools)
    for actor in range(512 + 256):  # those that are open, and those closed lately
        reason = f"{'r' * 60}{actor % 64:03}"
        valid = np.ones((3, 2), np.bool_)
        valid[0, 0] = False
        unroll = tools.make_unroll(valid=valid, dropped={reason: 1})
        name = f"{'x' * 45}{actor:03}"
        admission.check(unroll, name)
        assert admission.admit(name, 1, unroll, PolicyVersion(0, 0)) is None
    counters, dropped = admission.counters()
    heartbeat = tools.make_heartbeat(counters=counters, dropped=dropped)
    assert len(dropped) == 64
    assert encode(heartbeat, run="run-1", incarnation="x", sequence=1)


@pytest.mark.parametrize("length", [2, 4])
def test_an_unroll_of_another_length_is_refused_with_the_key_that_sets_it(tools, length) -> None:
    unroll = tools.make_unroll(T=length)
    with pytest.raises(
        WireError, match=rf"expected 3 steps \(actors.unroll_length\), got {length}"
    ):
        _admission(tools).check(unroll, "a")


def test_the_account_goes_on_after_a_restart(tools) -> None:
    admission = _admission(tools)
    admission.admit("a", 1, tools.make_unroll(), PolicyVersion(0, 0))
    admission.learned(2)
    restarted = _admission(tools, StepLedger.from_state(admission.state()))
    assert _numbers(restarted) == (6, 2, {"trainer_restart": 4}, 0)
    assert restarted.admit("a", 1, tools.make_unroll(), PolicyVersion(0, 0)) == "duplicate"
