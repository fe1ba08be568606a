from __future__ import annotations

import numpy as np

from aclearn.rollout import EpisodeCohorts, EpisodeTracker, FinishedEpisode, episode_statistics
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


def test_an_episode_has_the_chain_that_played_all_of_it():
    tracker, both = EpisodeTracker(B), ("int8>onnx", "onnx")

    def played(*index, **marked):
        ended = tracker.update(step([1] * B, **marked), both, np.array(index, np.int32))
        return [(episode.length, episode.chain) for episode in ended]

    assert tracker.update(step([1] * B), ["int8>onnx"]) == []
    assert played(0, 1, 0, terminated=[0, 1]) == [(2, "int8>onnx"), (2, "")]
    # the actions of a reset step are ignored, and so are the policies that chose them
    assert played(0, 1, 0, reset=[0, 1]) == []
    assert played(1, 0, 0) == []
    assert played(1, 1, 0, truncated=[0, 1, 2]) == [(2, "onnx"), (2, ""), (5, "int8>onnx")]
    assert played(0, 0, 0, reset=[0, 1, 2]) == []
    assert played(0, 1, 1, terminated=[0, 1, 2]) == [(1, "int8>onnx"), (1, "onnx"), (1, "onnx")]


def test_long_parts_of_an_episode_are_in_the_cohorts_and_its_rest_is_not(monkeypatch):
    monkeypatch.setattr(episode_statistics, "_LEAST_STEPS_OF_A_PART", 4)
    cohorts = EpisodeCohorts(lambda: 0.0)
    tracker = EpisodeTracker(B, cohorts)

    def play(steps, **last):
        """Lengths of the episodes that end, and of what is in the cohorts (the others rest)."""
        for marked in [{}] * (steps - 1) + [last]:
            ended = tracker.update(step([1, 0, 0], reset=[1, 2], **marked))
        tracker.update(step([0, 0, 0], reset=[0, 1, 2])) if last else None
        counted = cohorts.take()[0]
        assert all(each.return_sum == each.length_sum for each in counted)
        return [each.length for each in ended], [each.length_sum for each in counted]

    assert play(3) == ([], [])
    assert play(1) == ([], [4])
    assert play(4) == ([], [4])
    assert play(2, terminated=[0]) == ([10], [])  # the rest is shorter than any whole part
    # an episode of 10 steps has ended: now 40 make a part
    assert play(39, truncated=[0]) == ([39], [39])
    assert play(155) == ([], [])
    assert play(1) == ([], [156])
