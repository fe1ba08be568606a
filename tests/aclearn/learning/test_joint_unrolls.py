"""Unrolls of several policies that come from the same steps."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from aclearn.learning import Accounts, JointUnrolls, StepAccount
from tests.support.unrolls import quiet_unroll

STEPS = 6  # valid steps of the unroll


class Joint(JointUnrolls):
    """Of red and blue; the clock is `now`, and those forgotten are listed."""

    def __init__(self, **options):
        self.now, self.forgotten = 0.0, []
        told = lambda own: self.forgotten.append((own.sender, own.number))  # noqa: E731
        options = {
            "most": 9,
            "most_bytes": 1000,
            "clock": lambda: self.now,
            "on_forgotten": told,
            **options,
        }
        super().__init__({"red", "blue"}, **options)

    def put(self, actor, number, policy, nbytes=1, reason=None):
        unroll = SimpleNamespace(nbytes=nbytes, of=(actor, number))
        own = self.add(actor, number, policy, unroll, sender=actor.encode(), reason=reason)
        return own and {name: each.of for name, each in own.unrolls.items()}


def test_unrolls_of_one_number_come_out_together():
    joint = Joint()
    assert joint.put("a", 1, "red") is None
    assert joint.put("b", 1, "blue") is None
    assert joint.put("a", 1, "blue") == {"red": ("a", 1), "blue": ("a", 1)}
    # the other half of b's was lost: the next number takes its place
    assert joint.put("b", 2, "red") is None
    assert joint.put("b", 2, "red") is None  # sent again, since the other one did not leave
    assert joint.put("b", 2, "blue") == {"red": ("b", 2), "blue": ("b", 2)}
    assert joint.put("b", 2, "blue") is None
    assert joint.forgotten == []


def test_one_that_may_not_be_learned_decides_about_those_of_its_number():
    joint = Joint()
    joint.add("a", 1, "red", SimpleNamespace(nbytes=1), sender=b"a", reason="lag")
    whole = joint.add("a", 1, "blue", SimpleNamespace(nbytes=1), sender=b"a")
    assert (whole.reason, whole.reasons) == ("lag", {"red": "lag", "blue": None})


@pytest.mark.parametrize("bound", [{"most": 2}, {"most_bytes": 20}])
def test_halves_are_forgotten_beyond_a_bound_and_their_actors_told(bound):
    joint = Joint(**bound)
    for actor in "abc":
        joint.put(actor, 1, "red", nbytes=10)
    assert joint.forgotten == [(b"a", 1)]
    assert joint.put("a", 1, "blue", nbytes=0) is None
    assert joint.put("c", 1, "blue") is not None
    joint.put("d", 1, "red", nbytes=100)  # one half always has room
    assert joint.put("d", 1, "blue") is not None


def test_halves_of_actors_that_left_are_forgotten_after_a_minute():
    joint = Joint()
    joint.put("a", 1, "red")
    joint.now = 60.0
    joint.put("b", 1, "red")
    assert joint.forgotten == []
    joint.now = 61.0
    joint.put("c", 1, "red")
    assert joint.forgotten == [(b"a", 1)] and joint.put("b", 1, "blue") is not None


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
