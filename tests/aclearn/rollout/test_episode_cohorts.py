"""Episodes by when they began: whole cohorts, in order, in bounded memory."""

from __future__ import annotations

import pytest

from aclearn.rollout import EpisodeCohorts
from aclearn.types import MOST_COHORTS, EpisodeCohort
from tests.support.clock import Clock


def test_a_cohort_is_told_when_all_of_it_and_all_before_it_have_ended() -> None:
    clock = Clock(10.0)
    cohorts = EpisodeCohorts(clock)
    early = cohorts.begin(2)
    cohorts.end(early, 1.0, 5, {"won": 1.0})
    clock.now = 11.0
    assert cohorts.take() == ([], 10.0, 11.0)  # the longer one goes on
    late = cohorts.begin(1)  # a report closes a cohort
    cohorts.end(late, 7.0, 1, {"won": 0.0})
    clock.now = 12.0
    assert cohorts.take() == ([], 10.0, 12.0)
    cohorts.end(early, 3.0, 1000, {})
    first = EpisodeCohort(10.0, 2, 4.0, 1005, {"won": 1.0}, {"won": 1})
    second = EpisodeCohort(11.0, 1, 7.0, 1, {"won": 0.0}, {"won": 1})
    assert cohorts.take() == ([first, second], 12.0, 12.0)
    assert cohorts.take() == ([], 12.0, 12.0)


def test_a_faulted_episode_counts_for_nothing_and_is_not_waited_for() -> None:
    cohorts = EpisodeCohorts(Clock(0.0))
    number = cohorts.begin(2)
    cohorts.drop(number)
    cohorts.end(number, 3.0, 4, {})
    assert cohorts.take()[0] == [EpisodeCohort(0.0, 1, 3.0, 4)]
    cohorts.drop(cohorts.begin(1))
    assert cohorts.take()[0] == []


@pytest.mark.parametrize("short", [9, 5_000, 20_000])
def test_one_endless_episode_costs_no_memory_and_loses_no_other(short: int) -> None:
    cohorts = EpisodeCohorts(Clock(0.0))
    endless = cohorts.begin(1)
    for _ in range(short):
        cohorts.end(cohorts.begin(1), 2.0, 3, {})
        if short > 9:  # at most ten of these in a cohort
            assert cohorts.take()[0] == []
    assert len(cohorts._kept) <= 1024
    cohorts.end(endless, 0.0, 9, {})
    told, *_ = cohorts.take()
    assert len(told) <= MOST_COHORTS
    assert sum(each.episodes for each in told) == short + 1
    assert sum(each.return_sum for each in told) == 2.0 * short
