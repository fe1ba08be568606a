"""The COVID-19 economy as a resident world, against known sums and the dense NumPy reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

resident = pytest.importorskip("aclearn.resident")
from aclearn.errors import ConfigError  # noqa: E402
from tests.support.covid_golden import CASES, DAYS, Case  # noqa: E402
from tests.support.covid_numpy import STATES, Covid  # noqa: E402


def _make(envs: int = 1, **config: Any) -> Any:
    return resident.make("covid", envs=envs, device="cpu", **config)


def _actions(states: Any, planner: Any) -> dict[str, torch.Tensor]:
    given = {"state": np.atleast_2d(states), "planner": np.atleast_2d(planner)}
    return {kind: torch.from_numpy(actions).long() for kind, actions in given.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_gives_the_known_sums(case: Case) -> None:
    env = _make()
    env.reset()
    actions = _actions(np.full(STATES, case.level), [case.subsidy])
    rewards, planner, found = 0.0, 0.0, []
    for day in range(1, max(DAYS) + 1):
        step = env.step(actions)
        rewards += step.rewards["state"].double().sum().item()
        planner += step.rewards["planner"].double().sum().item()
        if day in DAYS:
            people = (env.data[name].sum().item() for name in ("deaths", "unemployed"))
            found.append([*people, rewards, planner])
    deaths, unemployed, rewards_by_day, planner_by_day = np.transpose(found)
    # the known sums have so many digits
    np.testing.assert_allclose(deaths, case.deaths, rtol=1e-6, atol=0.005)
    if case.unemployed is not None:
        np.testing.assert_allclose(unemployed, case.unemployed, rtol=1e-6, atol=0.05)
    np.testing.assert_allclose(rewards_by_day, case.state_rewards, rtol=1e-6, atol=5e-5)
    np.testing.assert_allclose(planner_by_day, case.planner_rewards, rtol=1e-6, atol=5e-6)
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([False], [True])
    env.close()


def test_random_policies_do_what_the_dense_filters_do_over_an_episode() -> None:
    env, dense, rng = _make(3), Covid(3), np.random.default_rng(4)
    seen = env.reset()
    for day in range(540):
        # few changes, so that unemployment comes and goes; the mask is not kept
        levels = rng.integers(0, 11, (3, STATES)) * (rng.random((3, STATES)) < 0.1)
        subsidies = rng.integers(0, 21, 3)
        states, planner = dense.observe()
        np.testing.assert_allclose(seen["state"], states, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(seen["planner"][:, 0], planner, rtol=1e-6, atol=1e-7)
        may, planner_may = dense.masks()
        masks = env.masks()
        np.testing.assert_array_equal(masks["state"], may, err_msg=str(day))
        np.testing.assert_array_equal(masks["planner"][:, 0], planner_may)
        step = env.step(_actions(levels, subsidies[:, None]))
        expected, seen = dense.step(levels, subsidies), step.observations
        for name in ("deaths", "unemployed", "infected", "vaccinated"):
            found = env.data[name][:, :STATES]
            np.testing.assert_allclose(found, getattr(dense, name), rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(
            step.rewards["state"], expected.state_rewards, rtol=1e-6, atol=1e-6
        )
        np.testing.assert_allclose(
            step.rewards["planner"][:, 0], expected.planner_rewards, rtol=1e-6, atol=1e-6
        )
    env.close()


def test_the_number_of_threads_changes_no_bit() -> None:
    one, many = _make(60, threads=1, episode_length=9), _make(60, threads=3, episode_length=9)
    assert [len(env.slices.all) for env in (one, many)] == [1, 3]
    one.reset(), many.reset()
    rng = np.random.default_rng(4)
    for _ in range(12):
        actions = _actions(rng.integers(0, 11, (60, STATES)), rng.integers(0, 21, (60, 1)))
        found, other = one.step(actions), many.step(actions)
        for kind in ("state", "planner"):
            assert torch.equal(found.observations[kind], other.observations[kind])
            assert torch.equal(found.rewards[kind], other.rewards[kind])
    one.close()
    many.close()


def test_states_share_one_space_and_the_planner_has_its_own() -> None:
    env = _make(2)
    states, planner = env.env.kinds
    assert states.agents[:2] == ("state_alabama", "state_alaska")
    assert "state_district_of_columbia" in states.agents
    assert (len(states.agents), planner.agents) == (STATES, ("planner",))
    seen = env.reset()
    assert {kind: tuple(rows.shape) for kind, rows in seen.items()} == {
        "state": (2, 51, 64),
        "planner": (2, 1, 463),
    }
    assert (states.action_space.n, planner.action_space.n) == (11, 21)
    env.close()


def test_a_new_level_stays_for_28_days_and_a_kept_one_may_change_on_the_next() -> None:
    env = _make()
    env.reset()
    free = []
    for day in range(58):
        masks = env.masks()["state"][0]
        free.append(bool(masks[0].all()))
        assert masks[:, 0].all()
        assert bool(masks[1].all())  # never changes its level
        levels = np.zeros(STATES, np.int64)
        levels[0] = 5 if free[-1] and day != 28 else 0
        env.step(_actions(levels, [0]))
    assert [day for day, allowed in enumerate(free) if allowed] == [0, 28, 29, 57]
    env.close()


def test_keys_change_the_rules() -> None:
    rules = {"subsidy_interval": 2, "num_subsidy_levels": 4, "max_annual_subsidy_per_person": 365.0}
    env = _make(episode_length=3, vaccine_delivery_start_date="2020-03-23", **rules)
    env.reset()
    outputs = []
    for subsidy in (4, 2, 1):
        step = env.step(_actions(np.zeros(STATES), [subsidy]))
        given = step.observations["planner"][0, 0, 6 * STATES : 7 * STATES]
        most = env.params.most_output.numpy()
        outputs.append(given.double().numpy() * most - env.data["output"][0, :STATES].numpy())
    assert step.truncated.all()
    population = env.params.population.numpy()
    for found, level in zip(outputs, (4, 4, 1), strict=True):  # the second day decides nothing
        np.testing.assert_allclose(found, population * level / 4, rtol=1e-3)
    doses = np.floor(population / 1e6 * 3000)
    np.testing.assert_allclose(env.data["vaccinated"][0, :STATES], 3 * doses)
    env.close()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"cooldown": 3}, "cooldown is not a known key"),
        ({"episode_length": 601}, "episode_length: expected whole number ≥ 1 and ≤ 600, got 601"),
        ({"vaccine_delivery_start_date": "12/1/2021"}, "expected a date after 2020-03-22"),
        ({"vaccine_delivery_start_date": "2020-03-22"}, "expected a date after 2020-03-22"),
        ({"health_priority_scaling_agents": -0.1}, "health_priority_scaling_agents: expected"),
    ],
)
def test_a_key_that_does_not_fit_is_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        _make(**config)
