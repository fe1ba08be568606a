from __future__ import annotations

import numpy as np

from aclearn.rollout import EpisodeTracker, FinishedEpisode
from aclearn.types import EnvStep

B = 3


def step(rewards, **marked):
    """A step in which the environments listed under a flag's name have it set."""
    flags = {
        name: np.isin(np.arange(B), marked.get(name, []))
        for name in ("terminated", "truncated", "life_lost", "reset", "faulted")
    }
    return EnvStep(
        observations=np.full((B, 2), np.nan, np.float32),
        rewards=np.array(rewards, np.float32),
        **flags,
    )


def test_the_true_rewards_of_an_episode_are_added_up():
    tracker = EpisodeTracker(B)
    assert tracker.update(step([1, 10, 0])) == []
    assert tracker.update(step([2, 20, 0], terminated=[1])) == [FinishedEpisode(30.0, 2)]
    assert tracker.update(step([4, 0, 0], reset=[1])) == []
    finished = tracker.update(step([8, -5, 0], truncated=[0], terminated=[1]))
    assert finished == [FinishedEpisode(15.0, 4), FinishedEpisode(-5.0, 1)]


def test_a_lost_life_ends_no_episode():
    tracker = EpisodeTracker(B)
    assert tracker.update(step([1, 0, 0], life_lost=[0])) == []
    assert tracker.update(step([1, 0, 0], terminated=[0])) == [FinishedEpisode(2.0, 2)]


def test_a_faulted_episode_is_forgotten():
    tracker = EpisodeTracker(B)
    tracker.update(step([100, 0, 0]))
    assert tracker.update(step([0, 0, 0], reset=[0], faulted=[0])) == []
    assert tracker.update(step([3, 0, 0], terminated=[0])) == [FinishedEpisode(3.0, 1)]


def test_long_sums_keep_small_rewards():
    # 2**24 + 1 has no float32
    tracker = EpisodeTracker(B)
    tracker.update(step([2.0**24, 0, 0]))
    assert tracker.update(step([1, 0, 0], terminated=[0]))[0].return_ == 2.0**24 + 1
