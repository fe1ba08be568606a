"""Unrolls wait for newer weights, but not for ever."""

from __future__ import annotations

import pytest

from aclearn.types import PolicyVersion
from services.actor.fresh_weights import FreshWeights, unrolls_of_a_version

T = 3


def taken(fresh: FreshWeights, version: int, group: int = 0) -> int:
    """Steps that the group may take with this version, at most 100."""
    at = PolicyVersion(0, version)
    return next(count for count in range(101) if count == 100 or not fresh.allow(group, at))


def test_a_group_makes_so_many_unrolls_by_one_version() -> None:
    fresh = FreshWeights(unroll_length=T, unrolls=2, clock=lambda: 0.0)
    assert taken(fresh, 1) == 2 * T
    assert taken(fresh, 1) == 0
    assert taken(fresh, 2) == 2 * T
    assert taken(fresh, 2, group=1) == 2 * T  # of its own
    # a restarted trainer's first version is another one, though its number is lower
    assert fresh.allow(0, PolicyVersion(1, 0))


def test_an_unroll_that_has_begun_goes_on() -> None:
    fresh = FreshWeights(unroll_length=T, unrolls=1, clock=lambda: 0.0)
    assert fresh.allow(0, PolicyVersion(0, 1))
    # newer weights in the middle of an unroll, which act in the next one too
    assert taken(fresh, 2) == (T - 1) + T


def test_without_an_update_it_goes_on_after_half_a_minute() -> None:
    now = [0.0]
    fresh = FreshWeights(unroll_length=T, unrolls=1, clock=lambda: now[0])
    assert taken(fresh, 1) == T
    now[0] = 29.9
    assert taken(fresh, 1) == 0
    now[0] = 30.0
    assert taken(fresh, 1) == T
    now[0] = 59.0
    assert taken(fresh, 1) == 0


@pytest.mark.parametrize(
    ("batch", "actors", "ranks", "expected"),
    [
        (1, 2, 1, [1, 1]),
        (8, 2, 1, [4, 4]),
        (5, 2, 1, [3, 3]),
        (4, 4, 2, [2, 2, 2, 2]),
        (4, 3, 2, [2, 4, 2]),  # the second rank has one actor, which plays its whole batch
        (4, 5, 3, [2, 2, 4, 2, 2]),
    ],
)
def test_the_actors_of_each_rank_play_its_batch(batch, actors, ranks, expected) -> None:
    found = [
        unrolls_of_a_version(batch, actor=actor, actors=actors, ranks=ranks)
        for actor in range(actors)
    ]
    assert found == expected
    later = unrolls_of_a_version(batch, actor=actors + ranks, actors=actors, ranks=ranks)
    assert later == found[actors % ranks], "an actor that has joined"
