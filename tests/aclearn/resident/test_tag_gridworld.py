"""Tag on a grid: the trajectories of WarpDrive's CPU class, and its rules one by one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from aclearn.config import EnvConfig
from aclearn.envs import make_vector_env
from aclearn.envs.single_env import drawn
from aclearn.errors import ArgumentError, ConfigError

resident = pytest.importorskip("aclearn.resident")
from aclearn.resident.pictures import BLUE, PINK  # noqa: E402

_GOLDEN = Path(__file__).parent / "golden"
#: Actions.
STAY, RIGHT, LEFT, UP, DOWN = range(5)


@pytest.mark.parametrize("seen", ["full", "partial"])
def test_600_steps_are_those_of_the_original(seen: str) -> None:
    golden = np.load(_GOLDEN / f"tag_gridworld_{seen}.npz")
    config = json.loads(str(golden["config"]))
    envs = resident.make("tag_gridworld", envs=2, device="cpu", **config)
    first = envs.reset()
    np.testing.assert_allclose(first[1], golden["first_observation"], rtol=0, atol=1e-6)
    ends = 0
    for t, done in enumerate(golden["dones"]):
        step = envs.step(torch.from_numpy(golden["actions"][t]).expand(2, 5))
        np.testing.assert_array_equal(envs.data["loc_x"][1], golden["loc_x"][t])
        np.testing.assert_array_equal(envs.data["loc_y"][1], golden["loc_y"][t])
        np.testing.assert_allclose(step.rewards[1], golden["rewards"][t], rtol=0, atol=1e-6)
        np.testing.assert_allclose(
            step.observations[1], golden["observations"][t], rtol=0, atol=1e-6
        )
        assert bool(step.terminated[1] | step.truncated[1]) == done and step.in_game.all()
        # at a tag a tagger is in the runner's cell; the rest are at the time limit
        cells = list(zip(golden["loc_x"][t], golden["loc_y"][t], strict=True))
        assert bool(step.terminated[1]) == (cells[4] in cells[:4])
        if done:
            ends += 1
            begun = envs.step(torch.full((2, 5), RIGHT))  # ignored
            assert torch.equal(begun.observations, first) and not begun.rewards.any()
    assert ends == envs.take_sums().episodes / 10 > 5


def _played(start: list[tuple[int, int]], *moves: list[int], **config):
    """The last step from these cells; the last agent is the runner."""
    x, y = zip(*start, strict=True)
    settings = {"num_taggers": len(start) - 1, "start": {"start_x": x, "start_y": y}} | config
    envs = resident.make("tag_gridworld", envs=1, device="cpu", **settings)
    envs.reset()
    for actions in moves:
        step = envs.step(torch.tensor([actions]))
    rewards = [round(reward, 4) for reward in step.rewards[0].tolist()]
    return envs, rewards, bool(step.terminated), bool(step.truncated), step.observations[0]


def test_two_tags_in_one_step_reward_both_taggers_and_cost_the_runner_once() -> None:
    _, rewards, terminated, truncated, _ = _played(
        [(4, 5), (6, 5), (0, 0), (5, 5)], [RIGHT, LEFT, STAY, STAY]
    )
    assert rewards == [10.0, 10.0, 10.0, -2.0]  # every tagger, the constructor's penalty of 2
    assert (terminated, truncated) == (True, False)


def test_a_tagger_and_the_runner_that_swap_their_cells_pass_each_other() -> None:
    _, rewards, terminated, *_ = _played([(4, 5), (5, 5)], [RIGHT, LEFT])
    assert rewards == [-0.01, 0.01] and not terminated


def test_a_tag_in_the_last_step_terminates_and_the_time_limit_truncates() -> None:
    still, catch = [STAY, STAY], [RIGHT, STAY]
    *_, rewards, terminated, truncated, _ = _played(
        [(4, 5), (5, 5)], still, catch, episode_length=2
    )
    assert (rewards, terminated, truncated) == ([10.0, -2.0], True, False)
    *_, terminated, truncated, _ = _played([(4, 5), (5, 5)], still, still, episode_length=2)
    assert (terminated, truncated) == (False, True)


def test_walls_stop_and_cost_also_in_the_step_of_a_tag() -> None:
    envs, rewards, terminated, *_ = _played([(0, 10), (10, 0)], [LEFT, DOWN])
    assert rewards == [-0.11, -0.09] and not terminated
    assert (envs.data["loc_x"].tolist(), envs.data["loc_y"].tolist()) == ([[0, 10]], [[10, 0]])
    _, rewards, terminated, *_ = _played([(9, 10), (10, 10)], [RIGHT, UP])
    assert rewards == [10.0, -2.1] and terminated


def test_the_runner_sees_the_nearest_tagger_and_of_equal_ones_the_first() -> None:
    # squared distances 9, 5, 5 to taggers 0, 1, 2
    *_, seen = _played([(5, 8), (4, 7), (7, 4), (5, 5)], [STAY] * 4, use_full_observation=False)
    expected = [[0.5, 0.8, 0.5, 0.5, 0, 0.01], [0.4, 0.7, 0.5, 0.5, 0, 0.01]]
    expected += [[0.7, 0.4, 0.5, 0.5, 0, 0.01], [0.5, 0.5, 0.4, 0.7, 1, 0.01]]
    np.testing.assert_allclose(seen, expected, atol=1e-6)


def test_a_key_that_is_absent_has_the_original_constructors_default() -> None:
    envs = resident.make("tag_gridworld", envs=1, device="cpu")
    shown = envs.reset()
    assert shown.shape == (1, 11, 45) and envs.env.time_limit == 100
    assert envs.data["loc_x"].tolist() == [[5] * 10 + [0]]
    assert envs.env.agents == [*(f"tagger_{i}" for i in range(10)), "runner_0"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_taggers": 0}, "num_taggers: expected whole number ≥ 1, got 0"),
        ({"num_taggers": True}, "num_taggers: expected whole number ≥ 1, got"),
        ({"grid_length": 2.5}, "grid_length: expected whole number .* got 2.5"),
        ({"grid_length": 23_171}, "grid_length: expected whole number ≥ 1 and ≤ 10000, got 23171"),
        ({"wall_hit_penalty": float("nan")}, "wall_hit_penalty: expected .*got nan"),
        ({"use_full_observation": "no"}, "use_full_observation: expected true or false"),
        ({"start": 5}, "start: expected start_x and start_y, got 5"),
        ({"start": {"start_x": [1, 2]}}, "start: expected start_x and start_y, got start_x"),
        (
            {"num_taggers": 1, "start": {"start_x": [1, 11], "start_y": [1, 1]}},
            r"start: start_x: expected 2 integers from 0 to 10, .* got \[1, 11\]",
        ),
        ({"num_tagger": 3}, "num_tagger is not a known key; did you mean num_taggers"),
    ],
)
def test_a_configuration_that_cannot_work(config: dict, words: str) -> None:
    with pytest.raises((ArgumentError, ConfigError), match=words):
        resident.make("tag_gridworld", envs=1, device="cpu", **config)


def test_it_is_drawn_with_the_runner_in_blue_and_taggers_in_pink_over_it() -> None:
    start = {"start_x": [0, 5, 10], "start_y": [0, 5, 10]}
    kwargs = {"num_taggers": 2, "start": start}
    env = drawn(EnvConfig(id="resident:tag_gridworld", kwargs=kwargs))
    group = make_vector_env(env, num_envs=2, seed=1, step_timeout_s=60.0, max_faults=0)
    group.reset()
    picture = group.picture()
    side = len(picture)
    assert picture.shape == (side, side, 3) and picture.dtype == np.uint8
    # cells are 0 to 10 from edge to edge, y upwards
    place = {cell: round((side - 1) * (cell + 0.5) / 11) for cell in (0, 5, 10)}
    for cell, colour in ((0, PINK), (5, PINK), (10, BLUE)):
        assert tuple(picture[side - 1 - place[cell], place[cell]]) == colour
    assert tuple(picture[place[0], place[0]]) == (255, 255, 255)
    group.send(np.array([STAY, RIGHT, LEFT] * 2, np.int32))
    group.recv()
    assert not np.array_equal(group.picture(), picture)
    group.close()
