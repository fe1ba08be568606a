"""Continuous Tag as a resident world, against the original's steps and the NumPy reference."""

from __future__ import annotations

import json
import math
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

resident = pytest.importorskip("aclearn.resident")
from aclearn.config import EnvConfig  # noqa: E402
from aclearn.envs import make_vector_env  # noqa: E402
from aclearn.errors import ArgumentError, ConfigError  # noqa: E402
from tests.support.tag_continuous_numpy import TagContinuous  # noqa: E402

GOLDEN = Path(__file__).parent / "golden"
#: Fields of the resident state by those of the reference.
FIELDS = {
    "x": "loc_x",
    "y": "loc_y",
    "direction": "direction",
    "speed": "speed",
    "acceleration": "acceleration",
    "time": "time",
}
#: Agent 0 hunts; so does agent 1 where there are two.
STILL: dict[str, Any] = {
    "grid_length": 10.0,
    "tagging_distance": 0.1,
    "tag_reward_for_tagger": 10.0,
    "tag_penalty_for_runner": -5.0,
    "end_of_game_reward_for_runner": 2.0,
}


def _make(envs: int = 1, **config: Any) -> Any:
    return resident.make("tag_continuous", envs=envs, device="cpu", **config)


def _start(types: list[int], x: list[float], y: list[float], direction: Any = 0.0) -> Any:
    return {
        "agent_types": np.array(types),
        "start_x": np.array(x),
        "start_y": np.array(y),
        "start_direction": np.full(len(x), direction),
    }


class _Numpy:
    """The NumPy rules as a reference of parity; counts the tags."""

    def __init__(self, world: Any, config: dict[str, Any]) -> None:
        types = tuple(int(name.startswith("tagger")) for name in world.agents)
        own = {k: v for k, v in config.items() if k not in ("num_taggers", "num_runners")}
        self.rules = TagContinuous(types, **own)
        self.time_limit, self.tags, self.emptied = world.time_limit, 0, 0

    def step(self, environments: Any, state: Any, actions: Any) -> Any:
        before = {name: state[field] for name, field in FIELDS.items()}
        before["in_game"] = state["in_game"].astype(np.int32)
        if self.rules.continuous_actions:
            reached = self.rules.move(before, *np.moveaxis(np.float32(actions["player"]), 2, 0))
        else:
            reached = self.rules.step(before, actions["player"])
        after = reached.state
        self.tags += int((reached.rewards > 5).sum())
        left = (before["in_game"] == 1) & (after["in_game"] == 0)
        self.emptied += int((reached.terminated & (before["in_game"] == 0).any(1)).sum())
        kept = ("direction", "speed", "acceleration")  # by agents that left before
        for name in kept:
            after[name] = np.where(before["in_game"] == 1, after[name], before[name])
        return resident.WorldReferenceStep(
            {field: after[name] for name, field in FIELDS.items()},
            {"player": reached.observations},
            reached.rewards,
            left | reached.terminated[:, None],
            np.broadcast_to(reached.truncated[:, None], left.shape),
        )


@pytest.mark.parametrize("name", ["full_exits", "full_stays", "partial_exits", "partial_stays"])
def test_it_takes_the_steps_of_the_original(name: str) -> None:
    golden = np.load(GOLDEN / f"tag_continuous_{name}.npz")
    start = {key: golden[key] for key in golden if key.startswith("start_")}
    start["agent_types"] = golden["agent_types"]
    env = _make(2, start=start, **json.loads(str(golden["config"])))
    first = env.reset()[1].clone()
    np.testing.assert_allclose(first, golden["first_observation"], atol=1e-4)
    for t, actions in enumerate(torch.from_numpy(golden["actions"]).long()):
        seen, rewards, terminated, truncated, _ = env.step(actions.expand(2, -1, -1))
        assert bool(terminated[1] | truncated[1]) == golden["dones"][t], t
        np.testing.assert_allclose(rewards[1], golden["rewards"][t], atol=1e-5, err_msg=str(t))
        np.testing.assert_allclose(seen[1], golden["observations"][t], atol=1e-4, err_msg=str(t))
        if golden["dones"][t]:  # the next step begins an episode, whatever the actions
            seen, rewards, terminated, truncated, in_game = env.step(actions.expand(2, -1, -1))
            assert torch.equal(seen[1], first)
            assert in_game.all()
            assert not (rewards.any() or terminated.any() or truncated.any())
    env.close()


@pytest.mark.parametrize(
    ("agents", "near", "envs", "more"),
    [
        (5, 2, 1000, {}),
        (5, 2, 50, {"continuous_actions": True}),
        (3, 4, 50, {"runner_exits_game_after_tagged": False}),
        (40, 0, 10, {}),
        (300, 10, 2, {}),
        (4, 2, 50, {"grid_length": 4.0, "tagging_distance": 0.25}),
    ],
    ids=(
        "1000 environments",
        "numbers as actions",
        "few neighbours",
        "full",
        "many agents",
        "all are caught one after another",
    ),
)
def test_each_step_is_that_of_numpy(
    agents: int, near: int, envs: int, more: dict[str, Any]
) -> None:
    taggers = max(1, agents // 8)
    config = {
        **STILL,
        "num_taggers": taggers,
        "num_runners": agents - taggers,
        "use_full_observation": near == 0,
        "num_other_agents_observed": max(near, 1),
        "episode_length": 20,
        "tagging_distance": 0.03,
        "skill_level_tagger": 1.5,
        "step_penalty_for_tagger": -0.1,
        "step_reward_for_runner": 0.25,
        "edge_hit_penalty": -0.5,
        "num_acceleration_levels": 3,
        "num_turn_levels": 4,
        **more,
    }
    world = resident.find_env("tag_continuous", config)
    reference = _Numpy(world, config)
    report = resident.check_resident(
        world, reference, envs=envs, tolerance=1e-5, periods={"direction": 2 * math.pi}
    )
    assert reference.tags > 0
    assert reference.emptied >= 10 or "tagging_distance" not in more
    assert report.episodes >= envs * agents
    assert report.excluded < report.steps / 1000


def _still(env: Any) -> Any:
    """A step in which nobody moves."""
    return env.step(torch.zeros(env.num_envs, env.agents, 2, dtype=torch.int64))


def test_a_tagger_of_two_runners_in_one_step_has_both_rewards_and_the_episode_ends() -> None:
    start = _start([1, 0, 0], [5.0, 5.5, 4.5], [5.0, 5.0, 5.0])
    env = _make(start=start, num_runners=2, **STILL)
    env.reset()
    _, rewards, terminated, truncated, in_game = _still(env)
    assert rewards.tolist() == [[20.0, -5.0, -5.0]]
    assert (terminated.tolist(), truncated.tolist()) == ([True], [False])
    assert in_game.tolist() == [[True, False, False]]
    env.close()


@pytest.mark.parametrize(("exits", "tagged"), [(True, -5.0), (False, -3.0)])
def test_a_runner_that_is_tagged_at_the_last_step_and_leaves_has_no_reward_of_the_end(
    exits: bool, tagged: float
) -> None:
    start = _start([1, 0, 0], [5.0, 5.5, 1.0], [5.0, 5.0, 1.0])
    rules = {**STILL, "episode_length": 1, "runner_exits_game_after_tagged": exits}
    env = _make(start=start, num_runners=2, **rules)
    env.reset()
    _, rewards, terminated, truncated, _ = _still(env)
    assert rewards.tolist() == [[10.0, tagged, 2.0]]
    assert (terminated.tolist(), truncated.tolist()) == ([False], [True])
    env.close()


def test_of_taggers_at_the_same_distance_the_lowest_number_has_the_tag() -> None:
    # the second one is farther, the third one is as near as the fifth
    start = _start([0, 1, 1, 0, 1], [5.0, 5.75, 4.5, 1.0, 5.5], [5.0, 5.0, 5.0, 1.0, 5.0])
    env = _make(start=start, num_taggers=3, num_runners=2, **STILL)
    env.reset()
    assert _still(env).rewards.tolist() == [[-5.0, 0.0, 10.0, 0.0, 0.0]]
    env.close()


def test_of_agents_at_the_same_distance_the_lowest_numbers_are_observed() -> None:
    x, y = [5.0, 6.0, 5.0, 4.0, 5.0], [5.0, 5.0, 6.0, 5.0, 4.0]
    env = _make(start=_start([0, 0, 0, 0, 1], x, y), num_runners=4, use_full_observation=False)
    unit = 1 / (np.sqrt(2) * 10)
    seen = env.reset()[0, 0, :4]  # x of two agents, then y
    np.testing.assert_allclose(seen, [unit, 0.0, 0.0, unit], atol=1e-6)
    env.close()


def test_a_wall_stops_an_agent_and_costs_a_reward_for_each_step_against_it() -> None:
    start = _start([1, 0], [9.5, 5.0], [10.0, 5.0])  # one way is along the upper wall
    level = {"num_acceleration_levels": 2, "edge_hit_penalty": -0.5}
    env = _make(start=start, num_runners=1, **level)
    env.reset()
    steps = [env.step(torch.tensor([[(a, 0), (0, 0)]])).rewards[0, 0].item() for a in (2, 0, 0)]
    assert steps == [-0.5, -0.5, -0.5]
    assert env.data["loc_x"][0, 0] == 10.0
    assert env.data["speed"][0, 0] == 1.0
    env.close()


def test_threads_and_the_number_of_environments_change_no_bit() -> None:
    shared = {"num_taggers": 2, "num_runners": 3, "use_full_observation": False, "seed": 5}
    shared |= {"episode_length": 20, "tagging_distance": 0.1}
    few, one, many = (
        _make(envs, threads=threads, **shared) for envs, threads in ((3, 1), (2100, 1), (2100, 3))
    )
    assert [len(env.slices.all) for env in (few, one, many)] == [1, 1, 3]
    for env in (few, one, many):
        env.reset()
    actions = torch.from_numpy(np.random.default_rng(2).integers(0, 11, (45, 2100, 5, 2)))
    for step in actions:
        first, found, other = few.step(step[:3]), one.step(step), many.step(step)
        for a, b in zip(found, other, strict=True):
            assert torch.equal(a, b)
        assert torch.equal(first.observations, other.observations[:3])
        assert torch.equal(first.rewards, other.rewards[:3])
    sums = [env.take_sums() for env in (one, many)]
    assert sums[0].episodes == sums[1].episodes > 2 * 2100 * 5
    for env in (few, one, many):
        env.close()


def test_numbers_as_actions_lie_between_the_bounds_as_minus_1_and_1_do() -> None:
    rules = {"min_acceleration": -0.2, "max_acceleration": 0.6, "max_speed": 5.0, "min_turn": 0.0}
    start = _start([1, 0], [5.0, 1.0], [5.0, 1.0])
    env = _make(start=start, num_runners=1, continuous_actions=True, **rules)
    env.reset()
    env.step(torch.tensor([[[0.5, 0.5], [7.0, -1.0]]]))  # beyond the bounds they are clipped
    # 0.5 is three quarters of the way
    np.testing.assert_allclose(env.data["acceleration"], [[0.4, 0.6]], atol=1e-6)
    np.testing.assert_allclose(env.data["direction"], [[3 / 8 * math.pi, 0.0]], atol=1e-6)
    env.close()


@pytest.mark.parametrize("near", [0, 3])
def test_the_estimate_of_the_memory_counts_the_rows_of_each_environment(near: int) -> None:
    config = {"num_runners": 40, "use_full_observation": near == 0}
    world = resident.find_env("tag_continuous", config)
    p = world.configured("cpu", 7, config)
    arrays = (p.tagged_by, p.cells.first, p.cells.agents, p.cells.places)
    assert sum(array.capacity for array in arrays) == 7 * world.params_bytes


def test_observations_longer_than_kernels_hold_are_made_only_where_they_are_read() -> None:
    config = {"num_taggers": 10, "num_runners": 150, "runner_exits_game_after_tagged": False}
    seen, blind = (_make(2, seed=1, observe=observe, **config) for observe in (True, False))
    reference = _Numpy(seen.env, config)
    seen.reset()
    assert blind.reset().shape == (2, 160, 1)
    rng = np.random.default_rng(3)
    for _ in range(4):
        actions = torch.from_numpy(rng.integers(0, 11, (2, 160, 2)))
        step, other = seen.step(actions), blind.step(actions)
        assert torch.equal(step.rewards, other.rewards)
    for name in seen.data:
        assert torch.equal(seen.data[name], blind.data[name]), name
    state = {name: seen.data[field].numpy() for name, field in FIELDS.items()}
    state["in_game"] = seen.data["in_game"].numpy().astype(np.int32)
    np.testing.assert_allclose(step.observations, reference.rules.observe(state), atol=1e-5)
    seen.close()
    blind.close()


def test_a_thousand_agents_that_could_see_all_take_memory_for_what_is_read() -> None:
    # 100 environments with observations of 6 994 numbers would need 5.6 GB
    env = _make(100, num_taggers=10, num_runners=990, observe=False)
    env.reset()
    env.uniform_rollout(recorded=False).run(2)
    (rows,) = env.kinds
    tensors = (tensor for tensor in vars(rows.buffers).values() if tensor is not None)
    assert sum(tensor.nbytes for tensor in tensors) < 1e7
    assert env.data["time"].tolist() == [2] * 100
    env.close()


def test_a_picture_shows_taggers_pink_runners_blue_and_nobody_who_left() -> None:
    start = _start([1, 0, 0], [5.0, 5.5, 1.0], [5.0, 5.0, 1.0])
    env = _make(start=start, num_runners=2, **STILL)
    env.reset()

    def colours() -> dict[str, int]:
        picture = env.picture().astype(int)
        assert picture.shape == (320, 320, 3)
        red, _, blue = np.moveaxis(picture, 2, 0)
        return {"pink": int((red > blue + 50).sum()), "blue": int((blue > red + 50).sum())}

    before = colours()
    _still(env)
    _still(env)
    after = colours()
    env.close()
    assert after["pink"] == pytest.approx(before["pink"], rel=0.05)
    assert before["blue"] > 1.3 * after["blue"] > 50


def test_the_program_of_the_page_catches_runners(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "tag_and_covid.md").read_text("utf-8")
    program = tmp_path / "tag.py"
    program.write_text(page.split("```python\n")[1].split("```")[0])
    runpy.run_path(str(program))
    caught, count = map(int, re.findall(r"\d+", capsys.readouterr().out))
    assert 0 <= caught < count == 800


def test_an_action_that_there_is_not_is_named_and_no_memory_is_read() -> None:
    env = _make(2, num_runners=2)
    env.reset()
    words = (
        "tag_continuous, environment 1, agent runner_0, number 1: .* from 0 to 10, got 2147483647"
    )
    actions = torch.zeros(2, 3, 2, dtype=torch.int64)
    actions[1, 1, 1] = 2**31 - 1
    with pytest.raises(ValueError, match=words):
        env.step(actions)
    env.close()


@pytest.mark.parametrize("name", ["tag_gridworld", "tag_continuous", "covid"])
def test_the_time_limit_is_set_by_episode_length_alone(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: time_limit: .* set episode_length instead"):
        resident.make(name, envs=1, device="cpu", time_limit=20)
    env = EnvConfig(id=f"resident:{name}", kwargs={"time_limit": 20})
    with pytest.raises(ConfigError, match="set episode_length instead"):
        make_vector_env(env, num_envs=1, seed=1, step_timeout_s=60.0, max_faults=0)
    made = resident.make(name, envs=1, device="cpu", episode_length=20)
    assert made.env.time_limit == 20
    made.close()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"num_tagger": 1}, "num_tagger is not a known key; did you mean num_taggers"),
        ({"num_runners": 0}, "num_runners: expected whole number ≥ 1, got 0"),
        ({"grid_length": -1}, "grid_length: expected number > 0, got -1"),
        ({"max_turn": float("nan")}, "max_turn: expected .*got nan"),
        ({"edge_hit_penalty": 1.0}, "edge_hit_penalty: expected number ≤ 0, got 1.0"),
        ({"use_full_observation": 1}, "use_full_observation: expected true or false"),
        ({"min_turn": 2.0}, "min_turn: expected at most max_turn"),
        ({"start": {"start_x": [1.0]}}, "start: expected agent_types, .* got start_x"),
        ({"start": _start([1, 0], [0.0, 1.0], [0.0, 1.0])}, "agent_types: expected 11 numbers"),
        ({"start": _start([0, 0], [0.0, 1.0], [0.0, 1.0]), "num_runners": 1}, "num_taggers = 1"),
        ({"start": _start([0, 1], [0.0, 11.0], [0.0, 1.0]), "num_runners": 1}, "start_x: expected"),
    ],
)
def test_a_key_that_does_not_fit_is_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises((ArgumentError, ConfigError), match=named):
        _make(**config)
