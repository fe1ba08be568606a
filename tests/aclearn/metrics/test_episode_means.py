"""Means over the newest episodes do not depend on which of them end first."""

from __future__ import annotations

import json
from collections import deque

import numpy as np
import pytest

from aclearn.metrics.episode_means import EpisodeMeans
from aclearn.rollout import EpisodeCohorts, EpisodeTracker, episode_statistics
from aclearn.types import EnvStep, EpisodeCohort
from aclearn.wire import Heartbeat
from tests.support.clock import Clock

SHORT = 5


class Actor:
    """Environments whose episodes have 5 or `long` steps of reward -1, each as likely.

    The first `endless` of them end no episode.
    """

    def __init__(
        self,
        name: str,
        envs: int,
        rng: np.random.Generator,
        clock_ahead_s: float,
        *,
        long: int,
        endless: int = 0,
    ) -> None:
        self.name, self._rng, self._ahead_s = name, rng, clock_ahead_s
        self._long = long
        self._clock = Clock()
        self.cohorts = EpisodeCohorts(self._clock)
        self._tracker = EpisodeTracker(envs, self.cohorts)
        self._left, self._over = self._lengths(envs), np.zeros(envs, np.bool_)
        self._left[:endless] = 10**9

    def _lengths(self, count: int) -> np.ndarray:
        return self._rng.choice([SHORT, self._long], count)

    def step(self, now: float) -> list[float]:
        """The returns of the episodes that end."""
        self._clock.now = now + self._ahead_s
        reset = self._over
        self._left = np.where(reset, self._lengths(len(reset)), self._left - 1)
        self._over = ~reset & (self._left == 0)
        none = np.zeros(len(reset), np.bool_)
        rewards = np.where(reset, 0.0, -1.0).astype(np.float32)
        step = EnvStep({}, rewards, self._over, none, none, reset, none)
        return [episode.return_ for episode in self._tracker.update(step)]

    def heartbeat(self) -> Heartbeat:
        cohorts, settled_s, clock_s = self.cohorts.take()
        return Heartbeat(cohorts=cohorts, settled_s=settled_s, clock_s=clock_s)


@pytest.mark.parametrize(("actors", "envs"), [(1, 128), (4, 32), (32, 4)])
def test_short_episodes_do_not_count_more_than_long_ones(actors: int, envs: int) -> None:
    rng, long = np.random.default_rng(3), 250
    players = [Actor(f"a{i}", envs, rng, 1e5 * i, long=long) for i in range(actors)]
    means, found, ended_first = EpisodeMeans(), [], deque(maxlen=100)
    for t in range(4 * long):
        for player in players:
            ended_first.extend(player.step(float(t)))
            if (t + 7 * len(player.name)) % 10 == 0:
                means.observe(player.name, player.heartbeat(), float(t), settles=True)
        if t < 0.9 * long and means.episodes:
            assert means.episodes < 100
        if means.episodes >= 100:
            found.append(means.return_mean)
        if t == 50:
            assert np.mean(ended_first) == -SHORT  # what these means are for
    assert len(found) > 1.5 * long
    # some means are far from the truth by chance, most are near: five deviations of one of 100
    mean, deviation = -(SHORT + long) / 2, (long - SHORT) / 2
    assert np.abs(np.array(found) - mean).max() < 5 * deviation / 10
    assert np.mean(found) == pytest.approx(mean, abs=2 * deviation / 10)
    assert means.length_mean == -means.return_mean


@pytest.mark.parametrize("endless", [(1, 0), (0, 1), (16, 1)])
def test_an_episode_without_end_counts_in_parts_and_stops_no_mean(
    endless: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    long, part = 100, 1000  # a tenth of the real ones
    monkeypatch.setattr(episode_statistics, "_LEAST_STEPS_OF_A_PART", part)
    rng = np.random.default_rng(5)
    players = [
        Actor(f"a{i}", 16 - 15 * i, rng, 1e5 * i, long=long, endless=count)
        for i, count in enumerate(endless)
    ]
    means, newest, found = EpisodeMeans(), deque(maxlen=1), []
    for t in range(6000):
        for player in players:
            player.step(float(t))
            if t % 20 == 0:
                means.observe(player.name, player.heartbeat(), float(t), settles=True)
        if means.state()[-1:] != list(newest):
            newest.extend(means.state()[-1:])
            found.append((t, means.return_mean))
    times, values = np.array(found).T
    assert times[0] < part + long
    assert np.diff(times).max() <= part + 20  # it never stands still
    if sum(endless) == 17:  # all of them: every part is an episode
        assert means.return_mean == -part
        return
    mean, deviation = (SHORT + long) / 2, (long - SHORT) / 2
    assert abs(np.mean(values) + mean) < 2 * deviation / 10


def _cohort(begun_s: float, episodes: int, return_: float, **info: float) -> EpisodeCohort:
    count = dict.fromkeys(info, 1)
    return EpisodeCohort(begun_s, episodes, episodes * return_, episodes, info, count)


def _observe(means, name, cohorts, settled_s, now) -> None:
    heartbeat = Heartbeat(cohorts=cohorts, settled_s=settled_s, clock_s=now)
    means.observe(name, heartbeat, now, settles=True)


def test_episodes_wait_for_those_of_other_actors_that_began_before() -> None:
    means = EpisodeMeans()
    _observe(means, "slow", [], 1.0, 3.0)
    _observe(means, "fast", [_cohort(0.5, 10, 4.0), _cohort(2.0, 90, 6.0)], 3.0, 3.0)
    assert (means.episodes, means.return_mean) == (10, 4.0)
    _observe(means, "slow", [_cohort(1.0, 100, -1.0)], 4.0, 4.0)
    assert (means.episodes, means.return_mean) == (190, pytest.approx((540 - 100) / 190))


def test_where_an_actor_leaves_in_mid_episode_the_shorter_ones_of_others_do_not_count() -> None:
    means = EpisodeMeans()
    _observe(means, "slow", [], 1.0, 3.0)
    _observe(means, "fast", [_cohort(0.5, 100, 4.0), _cohort(2.0, 100, 6.0)], 2.5, 3.0)
    means.forget("slow")
    assert means.return_mean == 4.0
    _observe(means, "fast", [_cohort(2.5, 100, 9.0)], 3.5, 4.0)
    assert means.return_mean == 4.0
    _observe(means, "fast", [_cohort(3.5, 100, 8.0)], 5.0, 5.0)
    assert means.return_mean == 8.0


def test_an_actor_that_restarts_again_and_again_hides_no_long_episodes_of_others() -> None:
    means = EpisodeMeans()
    for start in range(0, 400, 20):  # b lives for 20 s, the episodes of a last for 30 s
        _observe(means, f"b-{start}", [_cohort(start + 18.0, 1, 2.0)], start + 19.0, start + 20.0)
        began = start // 30 * 30
        ended = [_cohort(began - 30.0, 10, 7.0)] if start % 60 == 0 and began else []
        _observe(means, "a", ended, float(began), start + 20.0)
        means.forget(f"b-{start}")
    assert means.episodes == 78  # six times 10 of a, and all of b but the last two
    assert means.return_mean == pytest.approx((60 * 7.0 + 18 * 2.0) / 78)


def test_a_heartbeat_before_the_environments_does_not_set_the_clock() -> None:
    means = EpisodeMeans()
    means.observe("a", Heartbeat(), 5.0, settles=True)
    _observe(means, "b", [_cohort(5.5, 100, 4.0)], 6.0, 6.0)
    assert means.return_mean == 4.0
    _observe(means, "a", [_cohort(6.5, 100, 3.0)], 7.0, 7.0)
    _observe(means, "b", [], 7.0, 7.0)
    assert means.return_mean == 3.0


def test_means_of_info_are_over_the_episodes_that_have_the_figure() -> None:
    means = EpisodeMeans()
    _observe(means, "a", [_cohort(0.0, 4, 1.0, won=1.0), _cohort(1.0, 2, 1.0, won=0.0)], 2.0, 2.0)
    assert means.info_means == {"won": 0.5}


def test_a_successor_continues_the_means_and_leaves_out_what_it_may_know_in_part() -> None:
    first = EpisodeMeans()
    _observe(first, "a", [_cohort(0.0, 100, 4.0)], 1.0, 2.0)
    successor = EpisodeMeans(json.loads(json.dumps(first.state())))
    assert (successor.episodes, successor.return_mean) == (100, 4.0)
    _observe(successor, "a", [_cohort(9.5, 100, 1.0)], 9.9, 10.0)
    assert successor.return_mean == 4.0
    _observe(successor, "a", [_cohort(10.0, 100, 2.0)], 11.0, 11.0)
    assert successor.return_mean == 2.0
