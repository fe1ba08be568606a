"""The environments that need memory."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from aclearn.envs.memory_tasks import Recall, cartpole_without_velocities


def test_the_answer_is_the_cue_of_the_first_step() -> None:
    env = Recall(cues=3, delay=5)
    cues = set()
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        cue = int(observation[:3].argmax())
        cues.add(cue)
        for answer, expected in ((cue, 1.0), ((cue + 1) % 3, -1.0)):
            observation, _ = env.reset(seed=seed)
            assert observation[:3].tolist() == np.eye(3)[cue].tolist()
            rewards, asked, ends = [], [], [False]
            while not ends[-1]:
                asked.append(bool(observation[-1]))
                observation, reward, end, truncated, _ = env.step(np.int64(answer))
                assert not observation[:3].any() and not truncated
                rewards.append(reward)
                ends.append(end)
            assert rewards == [0.0] * 5 + [expected] and asked == [False] * 5 + [True]
    assert cues == {0, 1, 2}


@pytest.mark.parametrize("settings", [{"cues": 1}, {"delay": 0}])
def test_sizes_without_a_task_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 2 cues and a delay of at least 1 step"):
        Recall(**settings)


def test_positions_alone_are_shown() -> None:
    env, whole = cartpole_without_velocities(), gym.make("CartPole-v1")
    for mine, (_, _, angle, _) in (
        (env.reset(seed=1)[0], whole.reset(seed=1)[0]),
        (env.step(1)[0], whole.step(1)[0]),
    ):
        assert mine.shape == (2,) and mine[1] == angle


def test_recall_keeps_gymnasiums_contract() -> None:
    check_env(Recall(), skip_render_check=True)
