"""Cohorts of a heartbeat: as many as its header holds, with as many names as are allowed."""

from __future__ import annotations

import pytest

from aclearn.types import MOST_COHORTS, MOST_INFO_METRICS, EpisodeCohort, bounded_cohorts
from aclearn.wire import Heartbeat, encode
from aclearn.wire.codec import MAX_HEADER_BYTES


@pytest.mark.parametrize(
    ("names", "length", "most"),
    [(0, 1, MOST_COHORTS), (1, 10, MOST_COHORTS), (32, 48, 6), (32, 64, 4), (40, 64, 4)],
)
def test_cohorts_with_the_longest_names_fit_into_the_header(
    names: int, length: int, most: int
) -> None:
    info = [f"{i:0{length}d}" for i in range(names)]
    sums, counts = dict.fromkeys(info, 1e100), dict.fromkeys(info, 2**40)
    cohorts = [EpisodeCohort(float(i), 2**40, 1e100, 2**40, sums, counts) for i in range(500)]
    bounded = bounded_cohorts(cohorts)
    assert len(bounded) <= most
    assert sum(each.episodes for each in bounded) == 500 * 2**40
    heartbeat = Heartbeat(
        cohorts=bounded, episode_returns=[1e100] * 1000, episode_policies=["original"] * 1000
    )
    header = encode(heartbeat, run="r" * 32, incarnation="i" * 32, sequence=2**40)[0]
    assert len(header) < MAX_HEADER_BYTES
    empty = encode(Heartbeat(), run="r" * 32, incarnation="i" * 32, sequence=2**40)[0]
    alone = Heartbeat(cohorts=bounded)
    alone_header = encode(alone, run="r" * 32, incarnation="i" * 32, sequence=2**40)[0]
    assert len(alone_header) - len(empty) <= 24_000


@pytest.mark.parametrize("count", [1, 2, 500])
def test_a_cohort_has_no_more_names_than_a_monitor_takes(count: int) -> None:
    cohorts = []
    for i in range(count):
        names = [f"n{i}_{j}" for j in range(MOST_INFO_METRICS + 1)]
        cohorts.append(
            EpisodeCohort(0.0, 1, 0.0, 1, dict.fromkeys(names, 1.0), dict.fromkeys(names, 1))
        )
    for each in bounded_cohorts(cohorts):
        assert len(each.info_sums) == MOST_INFO_METRICS
        assert each.info_counts.keys() == each.info_sums.keys()
    joined = EpisodeCohort.joined(cohorts)
    assert list(joined.info_sums) == [f"n0_{j}" for j in range(MOST_INFO_METRICS)]
