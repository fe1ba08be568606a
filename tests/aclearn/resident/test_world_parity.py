"""Worlds against references with several agents, step by step."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
import torch

from aclearn.errors import ArgumentError

resident = pytest.importorskip("aclearn.resident")
from aclearn.resident import WorldReferenceStep  # noqa: E402
from tests.support.herd import DOG, HERD, LIMIT, SHEEP, NumpyHerd  # noqa: E402
from tests.support.tag_parallel import TagGridworld  # noqa: E402


class HerdReference:
    """The rules in NumPy; what differs is named in `wrong`."""

    time_limit = LIMIT

    def __init__(self, wrong: str = "", far: float = 2.5) -> None:
        self._wrong, self._far = wrong, far

    def step(self, environments, state, actions) -> WorldReferenceStep:
        steps, states, fields = [], [], ("time", "total", "x", "energy")
        for m, e in enumerate(environments):
            world = NumpyHerd(int(e), state["x"][m], state["energy"][m])
            world.time, world.in_game = int(state["time"][m]), state["in_game"][m].copy()
            world.far = self._far
            steps.append(world.step(actions["sheep"][m], actions["dog"][m, 0]))
            states.append([world.time, world.total, world.x, world.energy])
        named = {name: np.array([each[name] for each in steps]) for name in steps[0]}
        took_part, over = named["took_part"], named["terminated"][:, None]
        terminated = took_part & (named["left"] | over)
        truncated = took_part & ~terminated & named["truncated"][:, None]
        if self._wrong == "reward":
            named["rewards"][:, 1] += 0.01 * (named["rewards"][:, 1] > 0.5)
        if self._wrong == "mask":
            named["masks"][:, 2, 1] = False
        if self._wrong == "terminated":
            terminated[:, DOG] |= named["took_part"][:, :SHEEP].sum(1) == 1
        if self._wrong == "observation[2]":
            named["dog"][:, 2] += 1e-3
        return WorldReferenceStep(
            {name: np.array([s[i] for s in states]) for i, name in enumerate(fields)},
            {"sheep": named["sheep"], "dog": named["dog"][:, None]},
            named["rewards"],
            terminated,
            truncated,
            {"sheep": named["masks"]},
        )


def _check(reference, **settings):
    settings = {"tolerance": 1e-6, "envs": 1000} | settings
    return resident.check_resident(HERD, reference, **settings)


def test_whole_episodes_of_1000_worlds_are_those_of_a_reference_in_numpy() -> None:
    report = _check(HerdReference())
    assert report.steps > 5000 and report.episodes > 4000 and report.excluded == 0
    expected = {"x", "energy", "time", "total", "reward", "truncated", "mask"}
    expected |= {f"observation[{i}]" for i in range(3)}
    assert report.largest.keys() == expected
    assert max(report.largest.values()) <= 1e-6


@pytest.mark.parametrize(
    ("wrong", "agent"),
    [
        ("reward", "sheep_1"),
        ("mask", "sheep_2"),
        ("terminated", "rex"),
        ("observation[2]", "rex"),
    ],
)
def test_a_disagreement_names_field_agent_environment_step_and_both_values(
    wrong: str, agent: str
) -> None:
    words = (
        rf"^Herd: {re.escape(wrong)} of agent {agent} of environment \d+ after step \d+: the "
        r"environment has .+, the reference .+, tolerance 1e-06$"
    )
    with pytest.raises(resident.ParityError, match=words):
        _check(HerdReference(wrong), envs=30)


def test_an_end_at_the_threshold_is_excluded_and_counted_another_one_is_not() -> None:
    report = _check(HerdReference(far=2.505), tolerance=1e-2)
    assert 0 < report.excluded < 100
    with pytest.raises(resident.ParityError, match=r"terminated of agent \w+ of environment"):
        _check(HerdReference(far=2.6), tolerance=1e-2)


@pytest.mark.parametrize("full", [True, False])
def test_tag_on_a_grid_follows_a_parallel_environment_of_pettingzoo(full: bool) -> None:
    config = {"num_taggers": 3, "grid_length": 4, "episode_length": 15}
    config["use_full_observation"] = full
    world, env = resident.find_env("tag_gridworld", config), TagGridworld(**config)

    def set_state(env, state) -> None:
        env.places = np.stack([state["loc_x"], state["loc_y"]], 1)
        env.time = int(state["time"])

    reference = resident.PettingZooReference(world, env, set_state, time_limit=15)
    report = resident.check_resident(world, reference, tolerance=1e-6)
    assert report.episodes >= 4 * 1000 and report.steps > 5000 and report.excluded == 0
    # a runner elsewhere is another world
    shifted = resident.PettingZooReference(
        world, env, lambda env, s: set_state(env, s | {"loc_x": s["loc_x"] // 2}), time_limit=15
    )
    with pytest.raises(resident.ParityError, match=r"tag_gridworld: \S+ of agent \w+ of env"):
        resident.check_resident(world, shifted, envs=3)


def test_references_of_other_agents_and_other_lengths_are_refused() -> None:
    world = resident.find_env("tag_gridworld", {"num_taggers": 2})
    with pytest.raises(ArgumentError, match=r"its agents are \['tagger_0', 'runner_0'\], expected"):
        resident.PettingZooReference(world, TagGridworld(num_taggers=1), None, time_limit=100)
    longer = dataclasses.replace(HERD, time_limit=10)
    with pytest.raises(resident.ParityError, match=r"time_limit: .* 10 steps, the reference 9"):
        resident.check_resident(longer, HerdReference())


def test_the_same_world_elsewhere_is_a_reference() -> None:
    report = _check(resident.ResidentWorldReference(HERD, "cpu"), tolerance=0.0, envs=200)
    assert report.steps > 1000 and report.excluded == 0 and set(report.largest.values()) == {0.0}
    # what the reference has of its own is seen
    other = resident.ResidentWorldReference(HERD, "cpu", heavier=2.0)
    with pytest.raises(resident.ParityError, match=r"Herd: total of environment \d+"):
        _check(other, envs=3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("tag_gridworld", 1e-6),
        ("herd", 1e-6),
        ("tag_continuous", 1e-5),
        # people and dollars are float64; a country's output is 6e10 dollars a day
        ("covid", {"output": 1.0, "observation": 1e-6, "reward": 1e-5}),
    ],
)
def test_cuda_and_cpu_take_the_same_steps(name: str, tolerance: Any) -> None:
    world = HERD if name == "herd" else resident.find_env(name)
    report = resident.check_resident(
        world, resident.ResidentWorldReference(world, "cuda"), tolerance=tolerance
    )
    assert report.steps > 5000
