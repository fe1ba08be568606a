"""Recently visited observations, stacked again from single frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aclearn.learning import RecentObservations
from aclearn.learning.observation_buffer import MOST_OBSERVATIONS
from aclearn.types import OBSERVATION, ObservationSpec, Unroll
from tests.support.unrolls import quiet_unroll

T, B, S = 3, 2, 2
STACKS = ObservationSpec.plain((S, 2, 3), "uint8", S)
FLAT = ObservationSpec.plain((3,), "float32")


def images(start: int) -> Unroll:
    """Frame t of environment b is all start + 10 t + b, its history start + 100 + b."""
    value = start + 10 * np.arange(T + 1)[:, None] + np.arange(B)
    frames = np.broadcast_to(value[..., None, None, None], (T + 1, B, 1, 2, 3)).astype(np.uint8)
    history = np.broadcast_to((start + 100 + np.arange(B))[:, None, None, None], (B, 1, 2, 3))
    return quiet_unroll(np.ascontiguousarray(frames), history=history.astype(np.uint8))


def test_nothing_is_there_before_the_first_unroll() -> None:
    assert not RecentObservations(STACKS).sample(4)


def test_every_stacked_observation_of_an_unroll_can_be_drawn() -> None:
    recent = RecentObservations(STACKS)
    recent.add(images(0))
    got = recent.sample(100).observations[OBSERVATION]
    assert got.shape == (T * B, S, 2, 3)
    assert (got.dtype, got.flags.c_contiguous) == (np.uint8, True)
    # (older, newer) of each of the T · B steps, by hand
    expected = {(100, 0), (101, 1), (0, 10), (1, 11), (10, 20), (11, 21)}
    assert {(int(o[0, 0, 0]), int(o[1, 0, 0])) for o in got} == expected
    assert all((o[0] == o[0, 0, 0]).all() and (o[1] == o[1, 0, 0]).all() for o in got)


@pytest.mark.parametrize(("length", "kept"), [(3, 1024 // 3 + 1), (300, 8)])
def test_the_newest_unrolls_are_kept_eight_or_as_many_as_have_enough_steps(length, kept) -> None:
    recent = RecentObservations(FLAT)
    for start in range(400):
        frames = np.full((length + 1, 1, 3), start, np.float32)
        recent.add(quiet_unroll(frames, valid=np.ones((length, 1), np.bool_)))
    seen = [recent.sample(MOST_OBSERVATIONS).observations[OBSERVATION] for _ in range(40)]
    assert {int(start) for drawn in seen for start in drawn[:, 0]} == set(range(400 - kept, 400))


def test_what_is_drawn_is_of_all_kept_unrolls_in_their_order() -> None:
    recent = RecentObservations(FLAT, seed=1)
    for start in (10, 20, 30, 40):
        recent.add(quiet_unroll(np.full((T + 1, B, 3), start, np.float32)))
    drawn = [recent.sample(2).observations[OBSERVATION][:, 0].tolist() for _ in range(60)]
    assert {start for pair in drawn for start in pair} == {10, 20, 30, 40}
    assert all(first <= second for first, second in drawn)
    # two of 24 places are of one unroll with a probability of 5/23
    assert sum(first != second for first, second in drawn) > 30


def test_steps_that_are_not_learned_are_not_drawn() -> None:
    recent = RecentObservations(FLAT)
    frames = np.arange((T + 1) * B * 3, dtype=np.float32).reshape(T + 1, B, 3)
    valid = np.array([[True, False], [False, False], [False, True]])
    recent.add(quiet_unroll(frames, valid=valid))
    np.testing.assert_array_equal(
        recent.sample(10).observations[OBSERVATION], frames[[0, 2], [0, 1]]
    )


@pytest.mark.parametrize("count", [0, 5])
def test_without_valid_steps_or_without_a_count_there_is_nothing(count) -> None:
    recent = RecentObservations(FLAT)
    frames = np.zeros((T + 1, B, 3), np.float32)
    recent.add(quiet_unroll(frames, valid=np.zeros((T, B), np.bool_)))
    assert not recent.sample(count)


def test_of_unrolls_with_a_state_whole_ones_are_drawn_with_the_state_before() -> None:
    recent = RecentObservations(STACKS, seed=1)
    for start in (0, 40):
        valid = np.ones((T, B), np.bool_)
        valid[1, 0] = False
        if start == 40:
            valid[:, 1] = False  # nothing of it was played
        state = (np.float32([[start, 1], [start, 2]]), np.float32([[start + 3], [start + 4]]))
        recent.add(replace(images(start), valid=valid, state=state))
    drawn = recent.sample(100)
    assert (drawn.length, drawn.sequences) == (T, 3)
    newest = drawn.observations[OBSERVATION][:, 1, 0, 0].reshape(3, T)
    assert newest.tolist() == [[0, 10, 20], [1, 11, 21], [40, 50, 60]]
    assert drawn.observations[OBSERVATION][:, 0, 0, 0][::T].tolist() == [100, 101, 140]
    gap = [True, False, True]
    assert drawn.valid.reshape(3, T).tolist() == [gap, [True] * T, gap]
    assert [part.tolist() for part in drawn.state] == [[[0, 1], [0, 2], [40, 1]], [[3], [4], [43]]]
    assert [recent.sample(n).sequences for n in (0, 1, T, 2 * T + 1)] == [0, 1, 1, 2]


@pytest.mark.parametrize("units", [0, 2])
def test_a_sample_has_a_bounded_size_and_begins_with_a_long_unroll(units: int) -> None:
    recent, steps = RecentObservations(FLAT), 2 * MOST_OBSERVATIONS
    frames = np.broadcast_to(
        np.arange(steps + 1, dtype=np.float32)[:, None, None], (steps + 1, B, 3)
    )
    late = np.ones((steps, B), np.bool_)
    late[:MOST_OBSERVATIONS, 0] = False  # nothing of its first steps was played
    state = (np.float32([[1, 2], [3, 4]]),) if units else ()
    recent.add(replace(quiet_unroll(frames.astype(np.float32), valid=late), state=state))
    drawn = recent.sample(10 * steps)
    seen = drawn.observations[OBSERVATION][:, 0]
    assert len(seen) == MOST_OBSERVATIONS
    if units:
        assert drawn.length == len(drawn.valid) == MOST_OBSERVATIONS
        assert seen.tolist() == list(range(MOST_OBSERVATIONS))
        assert drawn.state[0].tolist() == [[3, 4]]
