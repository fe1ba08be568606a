"""Policies with a memory: which state each one goes on with, also of two policies in one group."""

from __future__ import annotations

import numpy as np

from aclearn.distributions import distribution_of
from aclearn.rollout import ActInput, PolicySnapshot, act, act_in_parts
from aclearn.types import OBSERVATION, ActionBatch, ActionSpec, PolicyOutput, PolicyVersion, State

B = 4
_TWO = distribution_of(ActionSpec.discrete(2))
_RNG = np.random.default_rng(0)


class Counting:
    """Counts its steps in each number of its state, `[B, size]`."""

    def __init__(self, size: int) -> None:
        self.size = size

    def step(self, observations, state: State = ()):
        rows = len(observations[OBSERVATION])
        parts = state or (np.zeros((rows, self.size), np.float32),)
        assert parts[0].shape == (rows, self.size)
        return PolicyOutput(np.zeros((rows, 2), np.float32), state=(parts[0] + 1,))


FULL = PolicySnapshot(Counting(3), PolicyVersion(0, 1))
SMALL, OTHER = (
    PolicySnapshot(Counting(n), PolicyVersion(0, 2), "prune>onnx", own_state=((n,),))
    for n in (2, 5)
)


def given_after(choice: ActionBatch | None) -> ActInput:
    seen = {OBSERVATION: np.zeros((B, 1), np.float32)}
    if choice is None:
        return ActInput(seen)
    return ActInput(seen, choice.next_state, own_state=choice.next_own_state)


def counts(state: State) -> list[float]:
    """The steps so far in each row; [] of a state that begins."""
    return [] if not state else state[0][:, 0].tolist()


def test_a_swap_keeps_the_state_but_to_one_of_its_own_which_begins_again() -> None:
    choice, seen = None, []
    for policy in (FULL, FULL, SMALL, SMALL, OTHER, FULL, FULL):
        choice = act(policy, _TWO, given_after(choice), _RNG)
        seen.append((counts(choice.next_state), counts(choice.next_own_state)))
    of = lambda n: [n] * B  # noqa: E731
    assert seen == [
        (of(1), []), (of(2), []),
        ([], of(1)), ([], of(2)),
        ([], of(1)),
        (of(1), []), (of(2), []),
    ]  # fmt: skip


def test_two_policies_in_one_group_each_go_on_with_their_own_state() -> None:
    choice = None
    for which in ([0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 1, 0]):
        places = np.array(which, np.int32)
        before = given_after(choice)
        choice = act_in_parts([SMALL, FULL], places, _TWO, before, _RNG)
        assert choice.state is before.state
    # where one takes over from the other it begins with zeros, and where it stops it leaves none
    assert counts(choice.next_state) == [0, 1, 3, 0]
    assert counts(choice.next_own_state) == [3, 0, 0, 1]
    # a compressed policy with the same state goes on where the full one ended
    same = PolicySnapshot(Counting(3), PolicyVersion(0, 2), "int8>onnx")
    choice = None
    for which in ([0, 0, 1, 1], [0, 1, 1, 0]):
        places = np.array(which, np.int32)
        choice = act_in_parts([same, FULL], places, _TWO, given_after(choice), _RNG)
    assert counts(choice.next_state) == [2, 2, 2, 2] and choice.next_own_state == ()


def test_a_third_policy_that_does_not_act_is_left_out() -> None:
    which = np.array([0, 2, 2, 0], np.int32)
    choice = act_in_parts([FULL, SMALL, FULL], which, _TWO, given_after(None), _RNG)
    assert counts(choice.next_state) == [1, 1, 1, 1] and choice.next_own_state == ()
