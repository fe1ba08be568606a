"""What cannot work is refused by name."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces

from aclearn.config import Config, EnvConfig, ResidentConfig
from aclearn.errors import ConfigError, EnvironmentFailure
from services.start.preflight import check_resident_extra

resident = pytest.importorskip("aclearn.resident")
from aclearn.resident.buffers import Buffers  # noqa: E402
from aclearn.resident.environments import cartpole  # noqa: E402
from aclearn.resident.vector_env import read_specs  # noqa: E402
from aclearn.resident.warp_setup import import_warp, wp  # noqa: E402

CARTPOLE = resident.find_env("CartPole")


def test_without_warp_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "warp", None)
    with pytest.raises(ConfigError, match=r'pip install "aclearn\[resident\]"'):
        import_warp()
    config = Config(env=EnvConfig(id="CartPole-v1"), resident=ResidentConfig(envs=4))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'resident.envs: .* "aclearn\[resident\]"'):
        check_resident_extra(config)


@wp.func
def _nan_step(s: cartpole.State, action: wp.int32, rng: wp.uint32, p: cartpole.Params):
    s, reward, terminated = cartpole.step(s, action, rng, p)
    return s, reward / wp.where(s.x_dot > 0.4, 0.0, 1.0), terminated


@wp.func
def _huge_step(s: cartpole.State, action: wp.int32, rng: wp.uint32, p: cartpole.Params):
    s, reward, terminated = cartpole.step(s, action, rng, p)
    return s, reward * wp.where(s.x_dot > 0.4, 1.001e12, 1e12), terminated


@pytest.mark.parametrize(
    ("step", "value"), [(_nan_step, "inf|nan"), (_huge_step, r"1\.001e\+12")], ids=("inf", "huge")
)
def test_a_number_out_of_range_is_named_with_environment_and_step(step, value: str) -> None:
    made = resident.make(
        dataclasses.replace(CARTPOLE, name="Broken", step=step), envs=50, device="cpu"
    )
    made.reset()
    rewards = []
    for _ in range(30):
        rewards.append(made.step(torch.ones(50, dtype=torch.int64))[1].clone())
    broken = {divmod(int(at), 50) for at in (torch.stack(rewards) > 1e12).flatten().nonzero()}
    where = (
        r"Broken: a reward or an observation is NaN or beyond 1e\+12 \((\d+) steps, such as step "
        rf"(\d+) of environment (\d+)(?:: reward ({value}))?\)"
    )
    with pytest.raises(EnvironmentFailure, match=where) as raised:
        made.take_sums()
    [found] = re.findall(where, str(raised.value))
    count, step, env = map(int, found[:3])
    assert count == len(broken) > 100 and (step, env) in broken


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"time_limit": 0}, "time_limit: expected at least 1 agent step, got 0"),
        ({"time_limit": None}, "without one an episode might never end"),
        (
            {"observation_space": spaces.Box(0, 255, (84, 84), np.uint8)},
            "expected a Box of float32 with one axis",
        ),
        ({"action_space": spaces.Text(5)}, "Text actions are not supported"),
    ],
    ids=("no steps", "never ends", "an image", "text"),
)
def test_a_definition_that_cannot_work(changes: dict, words: str) -> None:
    with pytest.raises(EnvironmentFailure, match=words):
        dataclasses.replace(CARTPOLE, **changes)


def test_an_observation_of_another_length_than_its_space() -> None:
    wrong = dataclasses.replace(CARTPOLE, observation_space=spaces.Box(-1.0, 1.0, (3,), np.float32))
    with pytest.raises(EnvironmentFailure, match="CartPole: Warp cannot compile it: "):
        resident.make(wrong, envs=2, device="cpu")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"envs": 0}, "resident.envs: expected at least 1 environment, got 0"),
        ({"envs": 10**12}, r"need .* GiB of cpu \(states .* has .* free; at most \d+ fit"),
        ({"envs": 2, "weight": 3.0}, "its keys are gravity, cart_mass"),
        ({"envs": 2, "device": "cuda:97"}, "resident.device: cuda:97 is not there"),
    ],
    ids=("none", "too many", "a wrong key", "no such device"),
)
def test_settings_that_cannot_work(settings: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resident.make("CartPole", **{"device": "cpu"} | settings)


def test_a_time_limit_where_an_episode_has_a_key_of_its_own_for_its_length() -> None:
    config = Config(
        env={"id": "resident:tag_gridworld", "kwargs": {"time_limit": 9}}, resident={"envs": 4}
    )
    words = "tag_gridworld: time_limit: .* set episode_length instead"
    for read in (resident.resident_env_of, read_specs):
        with pytest.raises(ConfigError, match=words):
            read(config)


def test_actions_of_another_shape_and_unknown_names() -> None:
    made = resident.make("CartPole", envs=4, device="cpu")
    made.reset()
    with pytest.raises(ValueError, match=r"actions: expected shape \[4\], got \[4, 1\]"):
        made.step(torch.zeros(4, 1, dtype=torch.int64))
    with pytest.raises(EnvironmentFailure, match="did you mean CartPole"):
        resident.make("Cartpol", envs=1)
    with pytest.raises(EnvironmentFailure, match="is a Struct, expected a ResidentEnv"):
        resident.make("aclearn.resident.environments.cartpole:State", envs=1)


def test_more_rows_than_a_stride_of_32_bits_can_pass_are_refused() -> None:
    action, rows = CARTPOLE.spec().action, (2**31 - 1) // (4 * 81)
    Buffers.empty(81, action, steps=1, rows=rows, device=torch.device("meta"))
    with pytest.raises(ConfigError, match=f"resident.envs: .* 2 GiB a step, {rows} agents in all"):
        Buffers.empty(81, action, steps=1, rows=rows + 1, device=torch.device("meta"))
