"""The classic-control environments against gymnasium's own, step by step."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from aclearn.config.resident import RESIDENT_ENVS

resident = pytest.importorskip("aclearn.resident")
from aclearn.resident import parity  # noqa: E402
from aclearn.resident.environments import cartpole  # noqa: E402
from aclearn.resident.warp_setup import wp  # noqa: E402
from tests.support.resident import FIELDS, PERIODS, TOLERANCES  # noqa: E402


def _reference(env):
    return resident.GymnasiumReference(RESIDENT_ENVS[env.name], FIELDS[env.name])


@pytest.mark.parametrize("name", resident.ENVIRONMENTS)
def test_each_step_is_gymnasiums(name: str) -> None:
    env = resident.find_env(name)
    # `benchmarks/resident.py parity` plays 1000 of each to the end
    envs, max_steps = (1000, 120) if name == "CartPole" else (20, None)
    report = resident.check_resident(
        env,
        _reference(env),
        tolerance=TOLERANCES[name],
        periods=PERIODS.get(name),
        envs=envs,
        max_steps=max_steps,
    )
    assert report.episodes >= envs  # by uniform actions a pole falls within 120 steps
    assert report.steps > 0.9 * envs * (max_steps or env.time_limit)
    assert report.excluded <= 3


@wp.func
def _step_with_a_wrong_mass(
    s: cartpole.State, action: wp.int32, rng: wp.uint32, p: cartpole.Params
):
    p.cart_mass = 1.001
    return cartpole.step(s, action, rng, p)


def test_a_disagreement_names_field_environment_step_and_both_values() -> None:
    env = dataclasses.replace(resident.find_env("CartPole"), step=_step_with_a_wrong_mass)
    with pytest.raises(resident.ParityError) as raised:
        resident.check_resident(env, _reference(env), tolerance=1e-6, envs=4, max_steps=3)
    words = str(raised.value)
    assert words.startswith("CartPole: x_dot of environment 0 after step 0: the environment has ")
    assert ", the reference " in words
    assert words.endswith("tolerance 1e-06")
    shorter = dataclasses.replace(env, time_limit=499)
    with pytest.raises(resident.ParityError, match=r"time_limit: .* 499 steps, the reference 500"):
        resident.check_resident(shorter, _reference(env))


def test_an_end_at_the_threshold_is_excluded_and_counted_another_one_is_not() -> None:
    # the reference ends a little earlier: within tolerance in the one case, not in the other
    class Earlier(resident.GymnasiumReference):
        def __init__(self, by: float) -> None:
            super().__init__("CartPole-v1", FIELDS["CartPole"])
            self._env.theta_threshold_radians -= by

    env = resident.find_env("CartPole")
    settings = {"envs": 1000, "max_steps": 40}
    report = resident.check_resident(env, Earlier(2e-4), tolerance=1e-3, **settings)
    assert report.excluded > 0
    with pytest.raises(resident.ParityError, match="terminated of environment"):
        resident.check_resident(env, Earlier(2e-2), tolerance=1e-3, **settings)


def test_the_same_environment_elsewhere_is_a_reference_and_is_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    class Counted(resident.ResidentEnvs):
        def __init__(self, *args, **settings) -> None:
            super().__init__(*args, **settings)
            made.append(self.num_envs)

    env = resident.find_env("CartPole")
    monkeypatch.setattr(parity, "ResidentEnvs", Counted)
    report = resident.check_resident(
        env, resident.ResidentReference(env, "cpu"), tolerance=0.0, envs=20, max_steps=40
    )
    # at a reset fewer environments are compared
    assert 20 * 40 > report.steps >= 20 * 40 - report.episodes and report.episodes > 20
    assert made == [20, 20]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", resident.ENVIRONMENTS)
def test_cuda_and_cpu_take_the_same_steps(name: str) -> None:
    env = resident.find_env(name)
    report = resident.check_resident(
        env,
        resident.ResidentReference(env, "cuda"),
        tolerance=TOLERANCES[name],
        periods=PERIODS.get(name),
    )
    assert report.steps > 10_000
