"""The keys of the COVID-19 economy, and the calibration that comes with the package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from aclearn.config import Group, Whole

Numbers = NDArray[np.float64]
#: Days of a year, as the calibration counts them.
YEAR = 365
#: Longest episode: later, changes of policy of the episode itself would leave the filters.
_LONGEST = 600


class CovidRules(Group):
    """Keys and defaults of the original's configuration for WarpDrive."""

    episode_length: Whole = Field(540, ge=1, le=_LONGEST, description="days")
    action_cooldown_period: Whole = Field(
        28, ge=1, description="days for which a state keeps a new level of stringency"
    )
    subsidy_interval: Whole = Field(90, ge=1, description="days between two decisions on subsidies")
    num_subsidy_levels: Whole = Field(20, ge=1, description="besides no subsidy")
    max_annual_subsidy_per_person: float = Field(20_000.0, ge=0, description="dollars")
    daily_vaccines_per_million_people: float = Field(3000.0, ge=0, description="doses")
    vaccine_delivery_start_date: str = Field(
        "2021-01-12", description="first day of vaccines, such as 2021-01-12"
    )
    health_priority_scaling_agents: float = Field(
        0.3, ge=0, description="factor of the weight of health against the economy, of the states"
    )
    health_priority_scaling_planner: float = Field(
        0.45, ge=0, description="the same of the planner"
    )

    @field_validator("vaccine_delivery_start_date")
    @classmethod
    def _is_later(cls, value: str) -> str:
        first = calibration().start
        try:
            later = date.fromisoformat(value) > first
        except ValueError:
            later = False
        if not later:
            raise ValueError(f"expected a date after {first}, such as 2021-01-12, got {value!r}")
        return value


@dataclass(frozen=True)
class Calibration:
    """What was fitted to the data of 51 states, among them the District of Columbia.

    Attributes:
        start: first day.
        names: of the states.
        population: people.
        levels: of stringency by day until the first, `[days, 51]`.
        susceptible, infected, recovered, vaccinated: people on the first day.
        gamma, mortality: share of the infected who recover in a day, of those who die then.
        delay: days until a level acts on infections.
        beta_slopes, beta_intercepts: infections by level.
        filter_days, filter_length: λ of each filter `[5]`, and the days that it sees.
        filter_weights, unemployment_bias: unemployment by the filters `[51, 5]`, and its least.
        value_of_life: dollars.
        eta, interest, sick, working_age: aversion to risk (CRRA), what a subsidy costs more than it
            gives, the share of the infected who cannot work, and of all people who could.
        annual_output: of all workers before the pandemic, dollars.
        health_weights: of the states, and of the planner last, `[52]`.
        least, most: of the marginal indices "health" and "economy", `[52]` each.
    """

    start: date
    names: tuple[str, ...]
    population: Numbers
    levels: NDArray[np.int64]
    susceptible: Numbers
    infected: Numbers
    recovered: Numbers
    vaccinated: Numbers
    gamma: float
    mortality: float
    delay: int
    beta_slopes: Numbers
    beta_intercepts: Numbers
    filter_days: Numbers
    filter_length: int
    filter_weights: Numbers
    unemployment_bias: Numbers
    value_of_life: float
    eta: float
    interest: float
    sick: float
    working_age: float
    annual_output: float
    health_weights: Numbers
    least: dict[str, Numbers]
    most: dict[str, Numbers]

    @property
    def open_workers(self) -> Numbers:
        """People at work in each state before the pandemic."""
        unemployed = (np.log(2.0) + self.unemployment_bias) / 100
        return (self.working_age - unemployed) * self.population

    @property
    def daily_output(self) -> float:
        """Of a worker, dollars."""
        return float(self.annual_output / YEAR / self.open_workers.sum())

    def changes(self) -> Numbers:
        """By how much the level changed on each day until the first, `[days, 51]`.

        Before the data it was 1 everywhere, the least one.
        """
        first = np.ones_like(self.levels[:1])
        return np.diff(self.levels, axis=0, prepend=first).astype(np.float64)

    def filters(self) -> Numbers:
        """What the filters of unemployment hold on the first day, `[51, 5]`."""
        ages = np.arange(len(self.levels))[::-1]
        return self.changes().T @ np.exp(-ages[:, None] / self.filter_days)


@cache
def calibration() -> Calibration:
    """The packaged calibration."""
    folder = files("aclearn.resident.environments") / "covid_data"
    fitted: dict[str, Any] = json.loads((folder / "fitted_params.json").read_text())
    constants: dict[str, Any] = json.loads((folder / "model_constants.json").read_text())
    with (folder / "history.npz").open("rb") as file:
        history = dict(np.load(file))
    settings = fitted["settings"]["env"]
    names = constants["US_STATE_IDX_TO_STATE_NAME"]

    def both(name: str) -> Numbers:
        return np.array([*fitted[name.format("AGENT")], fitted[name.format("PLANNER")]])

    kinds = {"health": "HEALTH", "economy": "ECONOMIC"}
    bounds = {
        end: {kind: both(f"{end}_MARGINAL_{{}}_{word}_INDEX") for kind, word in kinds.items()}
        for end in ("MIN", "MAX")
    }
    return Calibration(
        start=date.fromisoformat(settings["start_date"]),
        names=tuple(names[str(number)] for number in range(len(names))),
        population=np.array(constants["US_STATE_POPULATION"], np.float64),
        levels=history["levels"].astype(np.int64),
        **{name: history[name] for name in ("susceptible", "infected", "recovered", "vaccinated")},
        gamma=constants["SIR_GAMMA"],
        mortality=constants["SIR_MORTALITY"],
        delay=fitted["BETA_DELAY"],
        beta_slopes=np.array(fitted["BETA_SLOPES"]),
        beta_intercepts=np.array(fitted["BETA_INTERCEPTS"]),
        filter_days=np.array(fitted["CONV_LAMBDAS"]),
        filter_length=fitted["FILTER_LEN"],
        filter_weights=np.array(fitted["GROUPED_CONVOLUTIONAL_FILTER_WEIGHTS"]).reshape(-1, 5),
        unemployment_bias=np.array(fitted["UNEMPLOYMENT_BIAS"]),
        value_of_life=fitted["VALUE_OF_LIFE"],
        eta=settings["economic_reward_crra_eta"],
        interest=settings["risk_free_interest_rate"],
        sick=settings["infection_too_sick_to_work_rate"],
        working_age=settings["pop_between_age_18_65"],
        annual_output=float(constants["GDP_PER_CAPITA"] * constants["US_POPULATION"]),
        health_weights=both("INFERRED_WEIGHTAGE_ON_{}_HEALTH_INDEX"),
        least=bounds["MIN"],
        most=bounds["MAX"],
    )
