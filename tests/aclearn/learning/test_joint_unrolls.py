"""Unrolls of several policies that come from the same steps."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.learning import Accounts, JointUnrolls, StepAccount
from tests.support.unrolls import quiet_unroll

STEPS = 6  # valid steps of the unroll


def test_unrolls_of_one_number_come_out_together():
    joint = JointUnrolls({"red", "blue"})
    assert joint.add("a", 1, "red", 1) is None
    assert joint.add("b", 1, "blue", 2) is None
    assert joint.add("a", 1, "blue", 3) == {"red": 1, "blue": 3}
    # the other half of b's was lost: the next number takes its place
    assert joint.add("b", 2, "red", 4) is None
    assert joint.add("b", 2, "red", 5) is None  # sent again, since the other one did not leave
    assert joint.add("b", 2, "blue", 6) == {"red": 5, "blue": 6}
    assert joint.add("b", 2, "blue", 6) is None


def test_halves_of_dead_actors_are_forgotten_beyond_a_bound():
    joint = JointUnrolls({"red", "blue"}, most=2)
    for actor in "abc":
        joint.add(actor, 1, "red", actor)
    assert joint.add("a", 1, "blue", 0) is None
    assert joint.add("c", 1, "blue", 0) == {"red": "c", "blue": 0}


def accounts(**options):
    return Accounts({name: StepAccount(policy=name, **options) for name in ("red", "blue")})


def unrolls(red=0, blue=0):
    """Of the newest number, after so many steps of each policy."""
    return {
        name: quiet_unroll(
            np.zeros((4, 2, 1), np.float32),
            policy=name,
            env_steps_before=before,
            env_steps_after=before + STEPS,
        )
        for name, before in (("red", red), ("blue", blue))
    }


def test_unrolls_that_belong_together_are_admitted_or_dropped_as_one():
    both = accounts()
    assert both.admit("a", 1, unrolls(), None) is None
    assert [each.in_flight_steps for each in both.by_policy.values()] == [STEPS] * 2
    # the counters of one do not fit: the other's steps are not learned either
    assert both.admit("a", 2, unrolls(red=STEPS, blue=3), None) == "inconsistent_counter"
    red, blue = both.by_policy.values()
    assert (red.dropped_steps, blue.dropped_steps) == ({"inconsistent_counter": STEPS}, {})
    for each in both.by_policy.values():
        each.check()


@pytest.mark.parametrize("bound", [2 * STEPS, STEPS - 1])
def test_the_bound_of_a_run_is_one_of_the_sum_of_its_policies(bound):
    both = accounts(max_env_steps=bound, ahead=1)
    assert both.admit("a", 1, unrolls(), None) is None  # the one that reaches it is learned whole
    assert both.reached == "max_env_steps" and both.last
    assert both.admit("a", 2, unrolls(STEPS, STEPS), None) == "max_env_steps"
    assert [each.dropped_steps for each in both.by_policy.values()] == [{both.reached: STEPS}] * 2


def test_the_next_unrolls_of_all_policies_count_for_the_last_ones():
    both = accounts(max_env_steps=4 * STEPS + 1, ahead=1)
    both.admit("a", 1, unrolls(), None)
    assert not both.last  # 12 steps, and 12 more come
    both.admit("b", 1, unrolls(), None)
    assert both.last and both.reached is None
