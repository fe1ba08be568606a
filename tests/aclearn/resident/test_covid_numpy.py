"""The dense NumPy reference of the COVID-19 economy against sums that were computed before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.covid_golden import CASES, DAYS, Case
from tests.support.covid_numpy import STATES, Covid


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_gives_the_known_sums(case: Case) -> None:
    country = Covid(1)
    actions, subsidy = np.full((1, STATES), case.level), np.full(1, case.subsidy)
    rewards, planner, found = 0.0, 0.0, []
    for day in range(1, max(DAYS) + 1):
        step = country.step(actions, subsidy)
        rewards += step.state_rewards.sum()
        planner += step.planner_rewards.sum()
        if day in DAYS:
            found.append([country.deaths.sum(), country.unemployed.sum(), rewards, planner])
    deaths, unemployed, rewards_by_day, planner_by_day = np.transpose(found)
    # the known sums have so many digits
    np.testing.assert_allclose(deaths, case.deaths, rtol=1e-6, atol=0.005)
    if case.unemployed is not None:
        np.testing.assert_allclose(unemployed, case.unemployed, rtol=1e-6, atol=0.05)
    np.testing.assert_allclose(rewards_by_day, case.state_rewards, rtol=1e-6, atol=5e-5)
    np.testing.assert_allclose(planner_by_day, case.planner_rewards, rtol=1e-6, atol=5e-6)
