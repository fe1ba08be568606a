"""Visited observations, single ones and sequences."""

from __future__ import annotations

import numpy as np

from aclearn.types import Visited


def _visited(first: int, count: int, length: int) -> Visited:
    rows = np.arange(first, first + count * length)
    return Visited(
        {"x": rows[:, None]},
        np.stack([rows % 2 == 0, rows % 2 == 1], 1),
        length,
        rows % 5 != 3,
        (rows[::length, None].astype(np.float32),),
    )


def test_some_sequences_keep_all_that_belongs_to_them() -> None:
    visited = _visited(0, 4, 3)
    assert (len(visited), visited.sequences) == (12, 4)
    for which in (slice(1, None, 2), np.array([1, 3]), np.array([False, True, False, True])):
        some = visited.take(which)
        assert some.observations["x"][:, 0].tolist() == [3, 4, 5, 9, 10, 11]
        assert some.masks[:, 0].tolist() == [False, True, False, False, True, False]
        assert some.valid.tolist() == [False, True, True, True, True, True]
        assert some.state[0][:, 0].tolist() == [3, 9]
        assert some.measured(some.observations["x"])[:, 0].tolist() == [4, 5, 9, 10, 11]


def test_an_episode_begins_after_a_row_that_is_not_valid() -> None:
    visited = _visited(0, 3, 4)  # rows 3 and 8 are not valid: the last of a sequence, and a first
    assert visited.starts.T.tolist() == [[False] * 4, [False] * 4, [False, True, False, False]]
    np.testing.assert_array_equal(
        visited.by_time(visited.observations["x"])[:, :, 0],
        [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]],
    )


def test_parts_are_joined_and_those_of_another_length_than_the_newest_are_left_out() -> None:
    joined = Visited.joined([_visited(0, 1, 3), Visited(), _visited(3, 2, 3)])
    assert joined.observations["x"][:, 0].tolist() == list(range(9))
    assert joined.sequences == 3 and joined.state[0][:, 0].tolist() == [0, 3, 6]
    newer = Visited.joined([_visited(0, 1, 3), _visited(50, 1, 2)])
    assert newer.observations["x"][:, 0].tolist() == [50, 51] and newer.length == 2
    assert len(Visited.joined([])) == 0
