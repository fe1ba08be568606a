"""The COVID-19 economy in NumPy for M environments at once, in float64.

The filters of unemployment are dense: each step weighs the last 600 days of every state's policy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Arrays = NDArray[Any]
DATA = Path(__file__).parents[2] / "aclearn/resident/environments/covid_data"
STATES, START_DAY, VACCINES_FROM = 51, 81, 296


class Step(NamedTuple):
    """What a day reached: rewards of the states `[M, 51]` and of the planner `[M]`."""

    state_rewards: Arrays
    planner_rewards: Arrays


class Covid:
    """M countries from 2020-03-22 on.

    Attributes:
        deaths, unemployed, susceptible, infected, recovered, vaccinated: people, `[M, 51]`.
        levels: of stringency, by day since 2020-01-01, `[M, 51]` each.
        until: day until which each state's policy stays, `[M, 51]`.
        subsidy_level: the planner's, `[M]`.
    """

    def __init__(self, envs: int) -> None:
        fitted: dict[str, Any] = json.loads((DATA / "fitted_params.json").read_text())
        constants: dict[str, Any] = json.loads((DATA / "model_constants.json").read_text())
        history = np.load(DATA / "history.npz")

        def repeated(row: Arrays) -> Arrays:
            return np.repeat(np.float64(row)[None], envs, 0)

        self.fitted = {
            name: np.array(value) for name, value in fitted.items() if name != "settings"
        }
        self.mortality, self.gamma = constants["SIR_MORTALITY"], constants["SIR_GAMMA"]
        self.population = np.array(constants["US_STATE_POPULATION"], np.float64)
        self.weights = self.fitted["GROUPED_CONVOLUTIONAL_FILTER_WEIGHTS"].reshape(STATES, 5)
        # before the pandemic each state was at level 1, as on the first days of the data
        always_open = self._unemployed(np.zeros((1, STATES, 5)))[0]
        workers = 0.6 * self.population - always_open
        output = constants["GDP_PER_CAPITA"] * constants["US_POPULATION"]
        self.daily_output = output / workers.sum() / 365
        self.most_output = workers * self.daily_output
        for name in ("susceptible", "infected", "recovered", "vaccinated"):
            setattr(self, name, repeated(history[name]))
        self.deaths = self.mortality * (self.recovered - self.vaccinated)
        self.levels = [repeated(row) for row in history["levels"]]
        self.day = 0
        self.until = np.zeros((envs, STATES))
        self.subsidy_level = np.zeros(envs)
        self.unemployed = self._unemployed(self._filters())
        self.output = self._output()

    def step(self, actions: Arrays, planner: Arrays) -> Step:
        """One day.

        Args:
            actions: `[M, 51]`, 0 to keep the level, else the level.
            planner: `[M]`, the level of the subsidy.
        """
        self.day += 1
        decides = self.day == self.until + 1
        self.until += np.where(decides, np.where(actions == 0, 1, 28), 0)
        self.levels.append(np.where(actions > 0, actions, self.levels[-1]).astype(np.float64))
        if (self.day - 1) % 90 == 0:
            self.subsidy_level = planner.astype(np.float64)
        vaccines = np.floor(self.population / 1e6 * 3000) * (self.day >= VACCINES_FROM)
        fitted = self.fitted
        lagged = self.levels[START_DAY + self.day - int(fitted["BETA_DELAY"])]
        beta = fitted["BETA_INTERCEPTS"] + fitted["BETA_SLOPES"] * lagged
        share = np.minimum(1, vaccines / (self.susceptible + 1e-10))
        doses = np.minimum(vaccines, self.susceptible)
        met = self.susceptible / self.population * self.infected
        infections = beta * met * (1 - share)
        recoveries = self.gamma * self.infected
        self.susceptible = np.maximum(self.susceptible - infections - doses, 0)
        self.infected = np.maximum(self.infected + infections - recoveries, 0)
        self.recovered = np.maximum(self.recovered + recoveries + doses, 0)
        self.vaccinated = self.vaccinated + doses
        deaths_before, self.deaths = (
            self.deaths,
            self.mortality * (self.recovered - self.vaccinated),
        )
        self.unemployed = self._unemployed(self._filters())
        subsidy = self.subsidy_level[:, None] / 20 * self.population * 20_000 / 365
        self.output = self._output() + subsidy
        return self._rewards(self.deaths - deaths_before, subsidy)

    def masks(self) -> tuple[Arrays, Arrays]:
        """The actions that are allowed: of the states `[M, 51, 11]`, of the planner `[M, 21]`."""
        states = np.repeat((self.day >= self.until)[..., None], 11, 2)
        planner = np.full((len(states), 21), self.day % 90 == 0)
        states[..., 0] = planner[..., 0] = True
        return states, planner

    def observe(self) -> tuple[Arrays, Arrays]:
        """Observations of the states `[M, 51, 64]` and of the planner `[M, 463]`."""
        people = ("susceptible", "infected", "recovered", "deaths", "vaccinated", "unemployed")
        columns = [getattr(self, name) / self.population for name in people]
        columns.append(self.output / self.most_output)
        delay = int(self.fitted["BETA_DELAY"])
        columns += [self.levels[START_DAY + self.day - delay + 1] / 10, self.levels[-1] / 10]
        if self.day < VACCINES_FROM:
            vaccines = (VACCINES_FROM - self.day) / VACCINES_FROM
        else:
            vaccines = 1 / VACCINES_FROM
        M = len(self.deaths)
        shared = np.stack(
            [
                np.full(M, (90 - self.day % 90) / 90),
                self.subsidy_level / 20,
                np.full(M, vaccines),
                np.full(M, self.day / 540),
            ],
            1,
        )
        own = np.stack(columns, 2)  # [M, 51, 9]
        index = np.repeat(np.eye(STATES)[None], M, 0)
        states = np.concatenate([index, own, np.repeat(shared[:, None], STATES, 1)], 2)
        planner = np.concatenate([own.transpose(0, 2, 1).reshape(M, -1), shared], 1)
        return states, planner

    def _filters(self) -> Arrays:
        """What each filter sees of the changes of policy in the last 600 days, `[M, 51, 5]`."""
        levels = np.stack(self.levels)
        changes = np.diff(levels, axis=0, prepend=np.ones_like(levels[:1]))[-600:][::-1]
        days = np.arange(len(changes))
        weights = np.exp(-days[:, None] / self.fitted["CONV_LAMBDAS"])
        return np.einsum("tms,tk->msk", changes, weights)

    def _unemployed(self, filters: Arrays) -> Arrays:
        signal = (filters * self.weights).sum(2)
        percent = np.logaddexp(0, signal) + self.fitted["UNEMPLOYMENT_BIAS"]
        return percent * self.population / 100

    def _output(self) -> Arrays:
        """Dollars a day, before a subsidy."""
        away = (0.1 * self.infected + self.deaths) * 0.6 + self.unemployed
        return np.maximum(0, 0.6 * self.population - away) * self.daily_output

    def _rewards(self, deaths: Arrays, subsidy: Arrays) -> Step:
        fitted, year = self.fitted, self.most_output * 365

        def scaled(x: Arrays, who: str, what: str) -> Arrays:
            least, most = (fitted[f"{end}_MARGINAL_{who}_{what}_INDEX"] for end in ("MIN", "MAX"))
            return (x - least) / (most - least + 1e-10)

        def utility(x: Arrays) -> Arrays:
            return (2 - 1 / np.clip(365 * x, 0.1, 3)) / 365

        def weight(scaling: float, who: str) -> Arrays:
            alpha = fitted[f"INFERRED_WEIGHTAGE_ON_{who}_HEALTH_INDEX"]
            ratio = scaling * alpha / (1 - alpha)
            return ratio / (1 + ratio)

        life = float(fitted["VALUE_OF_LIFE"])
        w = weight(0.3, "AGENT")
        health = scaled(-deaths * life / year, "AGENT", "HEALTH")
        economy = scaled(utility(self.output / year), "AGENT", "ECONOMIC")
        states = w * health + (1 - w) * economy
        w = weight(0.45, "PLANNER")
        health = scaled(-deaths.sum(1) * life / year.sum(), "PLANNER", "HEALTH")
        income = self.output.sum(1) - 1.03 * subsidy.sum(1)
        economy = scaled(utility(income / year.sum()), "PLANNER", "ECONOMIC")
        return Step(states, w * health + (1 - w) * economy)
