"""The COVID-19 economy (Trott et al. 2021; Lan et al. 2021, §5.1): 51 states and a planner.

A toy model, and no advice on policy. Each day a state keeps or changes the stringency of its policy
(1: open, 10: closed), and each quarter the planner sets a subsidy. Both want few deaths and a large
economy. Infections follow a level 29 days later, unemployment follows changes of it.

Unemployment is a sum of five filters over the changes of the last 600 days, whose weights are
exponential: y(t) = q·y(t-1) + change(t) - q^600·change(t-600), with q = exp(-1/λ). In an episode of
at most 600 days the last change is one of the real history.
"""

from datetime import date
from typing import Any

import numpy as np
from gymnasium import spaces

from aclearn.resident.environments.covid_rules import (
    YEAR,
    Calibration,
    CovidRules,
    calibration,
)
from aclearn.resident.warp_setup import wp
from aclearn.resident.world import AgentKind, ResidentWorld

#: States; the planner is the agent after them.
STATES = 51
LEVELS = 10
#: Days until a level acts on infections: so many levels are kept.
DELAY = 29
_FILTERS = 5
#: What an agent observes of each state: people by condition, output, and two levels.
_COLUMNS = 9
#: What all observe: days until the next subsidy and vaccines, the subsidy, and the time.
_SHARED = 4

filters_type = wp.types.vector(length=_FILTERS, dtype=wp.float64)
levels_type = wp.types.vector(length=DELAY, dtype=wp.int32)


@wp.struct
class World:
    """Days since the first."""

    day: wp.int32


@wp.struct
class Agent:
    """People of a state by condition, its output without a subsidy [$/day], and its policy.

    `past` has the levels of the last days, that of day t at t modulo `DELAY`. Until `until` the
    level stays. Of the planner there is the level of the subsidy.
    """

    susceptible: wp.float64
    infected: wp.float64
    recovered: wp.float64
    vaccinated: wp.float64
    deaths: wp.float64
    new_deaths: wp.float64
    unemployed: wp.float64
    output: wp.float64
    filters: filters_type
    level: wp.int32
    past: levels_type
    until: wp.int32
    subsidy_level: wp.int32


@wp.struct
class Params:
    """The rules and the calibration; arrays by state, or `[52]` with the planner last."""

    first: wp.array(dtype=Agent)
    population: wp.array(dtype=wp.float64)
    most_output: wp.array(dtype=wp.float64)
    beta_intercepts: wp.array(dtype=wp.float64)
    beta_slopes: wp.array(dtype=wp.float64)
    doses: wp.array(dtype=wp.float64)
    filter_weights: wp.array(dtype=filters_type)
    unemployment_bias: wp.array(dtype=wp.float64)
    health_weights: wp.array(dtype=wp.float64)
    least_health: wp.array(dtype=wp.float64)
    most_health: wp.array(dtype=wp.float64)
    least_economy: wp.array(dtype=wp.float64)
    most_economy: wp.array(dtype=wp.float64)
    decay: filters_type
    far_decay: filters_type
    changes: wp.array2d(dtype=wp.float64)
    first_forgotten: wp.int32
    gamma: wp.float64
    mortality: wp.float64
    value_of_life: wp.float64
    eta: wp.float64
    cost_of_subsidy: wp.float64
    sick: wp.float64
    working_age: wp.float64
    daily_output: wp.float64
    full_subsidy: wp.float64
    levels_of_subsidy: wp.int32
    subsidy_interval: wp.int32
    cooldown: wp.int32
    vaccines_from: wp.int32
    episode_length: wp.int32


@wp.func
def reset_world(e: wp.int32, rng: wp.uint32, p: Params) -> World:
    """The first day."""
    return World()


@wp.func
def reset_agent(world: World, a: wp.int32, rng: wp.uint32, p: Params) -> Agent:
    """A state, or the planner, on the first day."""
    return p.first[a]


@wp.func
def move_state(
    s: Agent, world: World, a: wp.int32, action: wp.int32, rng: wp.uint32, p: Params
) -> Agent:
    """A day of a state, but for the subsidy; action 0 keeps the level."""
    day = world.day + 1
    if day == s.until + 1:
        s.until += wp.where(action == 0, 1, p.cooldown)
    before = s.level
    if action > 0:
        s.level = action
    lagged = s.past[day % DELAY]
    s.past[day % DELAY] = s.level

    doses = wp.float64(0.0)
    if day >= p.vaccines_from:
        doses = p.doses[a]
    share = wp.min(wp.float64(1.0), doses / (s.susceptible + wp.float64(1e-10)))
    doses = wp.min(doses, s.susceptible)
    beta = p.beta_intercepts[a] + p.beta_slopes[a] * wp.float64(lagged)
    met = s.susceptible / p.population[a] * s.infected
    infections = beta * met * (wp.float64(1.0) - share)
    recoveries = p.gamma * s.infected
    s.susceptible = wp.max(s.susceptible - infections - doses, wp.float64(0.0))
    s.infected = wp.max(s.infected + infections - recoveries, wp.float64(0.0))
    s.recovered = wp.max(s.recovered + recoveries + doses, wp.float64(0.0))
    s.vaccinated = s.vaccinated + doses
    deaths = p.mortality * (s.recovered - s.vaccinated)
    s.new_deaths = deaths - s.deaths
    s.deaths = deaths

    signal = wp.float64(0.0)
    for k in range(_FILTERS):
        y = p.decay[k] * s.filters[k] + wp.float64(s.level - before)
        if day >= p.first_forgotten:
            y -= p.far_decay[k] * p.changes[day - p.first_forgotten, a]
        s.filters[k] = y
        signal += p.filter_weights[a][k] * y
    percent = p.unemployment_bias[a] + wp.max(signal, wp.float64(0.0))
    percent += wp.log(wp.float64(1.0) + wp.exp(-wp.abs(signal)))
    s.unemployed = percent * p.population[a] / wp.float64(100.0)
    away = (p.sick * s.infected + s.deaths) * p.working_age + s.unemployed
    workers = wp.max(p.working_age * p.population[a] - away, wp.float64(0.0))
    s.output = workers * p.daily_output
    return s


@wp.func
def move_planner(
    s: Agent, world: World, a: wp.int32, action: wp.int32, rng: wp.uint32, p: Params
) -> Agent:
    """The level of the subsidy, on days on which it is decided."""
    if world.day % p.subsidy_interval == 0:
        s.subsidy_level = action
    return s


@wp.func
def subsidy(agents: wp.array(dtype=Agent), a: wp.int32, p: Params) -> wp.float64:
    """Dollars for a state today."""
    level = wp.float64(agents[STATES].subsidy_level) / wp.float64(p.levels_of_subsidy)
    return level * p.population[a] * p.full_subsidy


@wp.func
def utility(income: wp.float64, p: Params) -> wp.float64:
    """Of a day's income, as a share of a year's largest output."""
    annual = wp.clamp(income * wp.float64(YEAR), wp.float64(0.1), wp.float64(3.0))
    power = wp.float64(1.0) - p.eta
    gain = (wp.pow(annual, power) - wp.float64(1.0)) / power
    return (wp.float64(1.0) + gain) / wp.float64(YEAR)


@wp.func
def scaled(x: wp.float64, least: wp.float64, most: wp.float64) -> wp.float64:
    """A marginal index, 0 at its least and 1 at its most of the calibration."""
    return (x - least) / (most - least + wp.float64(1e-10))


@wp.func
def interact(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
):
    """The reward: health and economy, weighted."""
    deaths = wp.float64(0.0)
    income = wp.float64(0.0)
    largest = wp.float64(0.0)
    if a < STATES:
        deaths = agents[a].new_deaths
        income = agents[a].output + subsidy(agents, a, p)
        largest = p.most_output[a]
    else:
        for state in range(STATES):
            paid = subsidy(agents, state, p)
            deaths += agents[state].new_deaths
            income += agents[state].output + paid - p.cost_of_subsidy * paid
            largest += p.most_output[state]
    year = largest * wp.float64(YEAR)
    health = scaled(-deaths * p.value_of_life / year, p.least_health[a], p.most_health[a])
    economy = scaled(utility(income / year, p), p.least_economy[a], p.most_economy[a])
    weight = p.health_weights[a]
    return wp.float32(weight * health + (wp.float64(1.0) - weight) * economy), False


@wp.func
def step_world(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    rewards: wp.array(dtype=wp.float32),
    left: wp.array(dtype=wp.bool),
    rng: wp.uint32,
    p: Params,
):
    """The next day."""
    world.day += 1
    return world, False


@wp.func
def show_state(
    world: World,
    agents: wp.array(dtype=Agent),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.float32),
    at: wp.int32,
    stride: wp.int32,
):
    """The columns of state a, at `at`, `at + stride`, ….

    The first level is the one that acts on the infections of the next day.
    """
    s = agents[a]
    population = p.population[a]
    row[at] = wp.float32(s.susceptible / population)
    row[at + stride] = wp.float32(s.infected / population)
    row[at + 2 * stride] = wp.float32(s.recovered / population)
    row[at + 3 * stride] = wp.float32(s.deaths / population)
    row[at + 4 * stride] = wp.float32(s.vaccinated / population)
    row[at + 5 * stride] = wp.float32(s.unemployed / population)
    row[at + 6 * stride] = wp.float32((s.output + subsidy(agents, a, p)) / p.most_output[a])
    row[at + 7 * stride] = wp.float32(s.past[(world.day + 1) % DELAY]) / wp.float32(LEVELS)
    row[at + 8 * stride] = wp.float32(s.level) / wp.float32(LEVELS)


@wp.func
def show_shared(
    world: World,
    agents: wp.array(dtype=Agent),
    p: Params,
    row: wp.array(dtype=wp.float32),
    at: wp.int32,
):
    """What all observe, from the column `at` on."""
    until = p.subsidy_interval - world.day % p.subsidy_interval
    row[at] = wp.float32(until) / wp.float32(p.subsidy_interval)
    level = wp.float32(agents[STATES].subsidy_level)
    row[at + 1] = level / wp.float32(p.levels_of_subsidy)
    row[at + 2] = wp.float32(wp.max(p.vaccines_from - world.day, 1)) / wp.float32(p.vaccines_from)
    row[at + 3] = wp.float32(world.day) / wp.float32(p.episode_length)


@wp.func
def observe_state(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.float32),
):
    """Which state it is, its own columns, and what all observe."""
    for state in range(STATES):
        row[state] = wp.where(state == a, 1.0, 0.0)
    show_state(world, agents, a, p, row, STATES, 1)
    show_shared(world, agents, p, row, STATES + _COLUMNS)


@wp.func
def observe_planner(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.float32),
):
    """The columns of all states, and what all observe."""
    for state in range(STATES):
        show_state(world, agents, state, p, row, state, STATES)
    show_shared(world, agents, p, row, _COLUMNS * STATES)


@wp.func
def mask_state(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.bool),
):
    """A new level is allowed once the last one has stayed for long enough."""
    for level in range(LEVELS + 1):
        row[level] = level == 0 or world.day >= agents[a].until


@wp.func
def mask_planner(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.bool),
):
    """A subsidy is allowed on days on which it is decided."""
    for level in range(p.levels_of_subsidy + 1):
        row[level] = level == 0 or world.day % p.subsidy_interval == 0


def covid(**config: Any) -> ResidentWorld:
    """The world of these keys (`CovidRules`).

    Agents are `state_alabama` and so on, in the order of the calibration, and `planner`.

    Raises:
        ConfigError: a key or a value does not fit; one line for each.
    """
    rules, fitted = CovidRules(**config), calibration()

    def make_params(device: Any, envs: int, **_config: Any) -> Any:
        # the keys have made the world already
        return _params(rules, fitted, device)

    def seen(size: int) -> spaces.Space[Any]:
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)

    states = AgentKind(
        "state",
        tuple(f"state_{name.lower().replace(' ', '_')}" for name in fitted.names),
        move_state,
        observe_state,
        observation_space=seen(STATES + _COLUMNS + _SHARED),
        action_space=spaces.Discrete(LEVELS + 1),
        mask=mask_state,
    )
    planner = AgentKind(
        "planner",
        ("planner",),
        move_planner,
        observe_planner,
        observation_space=seen(_COLUMNS * STATES + _SHARED),
        action_space=spaces.Discrete(rules.num_subsidy_levels + 1),
        mask=mask_planner,
    )
    return ResidentWorld(
        "covid",
        World,
        Agent,
        reset_world,
        reset_agent,
        interact,
        step_world,
        kinds=(states, planner),
        time_limit=rules.episode_length,
        length_key="episode_length",
        params=Params,
        make_params=make_params,
    )


def _params(rules: CovidRules, fitted: Calibration, device: Any) -> Any:
    p = Params()

    def doubles(values: Any, dtype: Any = wp.float64) -> Any:
        return wp.array(np.asarray(values, np.float64), dtype=dtype, device=device)

    p.first = wp.array(_first_agents(fitted), dtype=Agent, device=device)
    p.most_output = doubles(fitted.open_workers * fitted.daily_output)
    p.doses = doubles(np.floor(fitted.population / 1e6 * rules.daily_vaccines_per_million_people))
    p.filter_weights = doubles(fitted.filter_weights, filters_type)
    for name in ("population", "beta_intercepts", "beta_slopes", "unemployment_bias"):
        setattr(p, name, doubles(getattr(fitted, name)))
    scaling = np.full(STATES + 1, rules.health_priority_scaling_agents)
    scaling[STATES] = rules.health_priority_scaling_planner
    ratio = scaling * fitted.health_weights / (1 - fitted.health_weights)
    p.health_weights = doubles(ratio / (1 + ratio))
    for kind in ("health", "economy"):
        setattr(p, f"least_{kind}", doubles(fitted.least[kind]))
        setattr(p, f"most_{kind}", doubles(fitted.most[kind]))
    p.decay = filters_type(*np.exp(-1 / fitted.filter_days))
    p.far_decay = filters_type(*np.exp(-fitted.filter_length / fitted.filter_days))
    p.changes = doubles(fitted.changes())
    p.first_forgotten = fitted.filter_length - (len(fitted.levels) - 1)
    for name in ("gamma", "mortality", "value_of_life", "eta", "sick", "working_age"):
        setattr(p, name, getattr(fitted, name))
    p.cost_of_subsidy, p.daily_output = 1 + fitted.interest, fitted.daily_output
    p.full_subsidy = rules.max_annual_subsidy_per_person / YEAR
    p.levels_of_subsidy, p.subsidy_interval = rules.num_subsidy_levels, rules.subsidy_interval
    p.cooldown, p.episode_length = rules.action_cooldown_period, rules.episode_length
    p.vaccines_from = (date.fromisoformat(rules.vaccine_delivery_start_date) - fitted.start).days
    return p


def _first_agents(fitted: Calibration) -> Any:
    """The states on the first day, and the planner, `[52]`."""
    first = np.zeros(STATES + 1, Agent.numpy_dtype())
    state = first[:STATES]
    for name in ("susceptible", "infected", "recovered", "vaccinated"):
        state[name] = getattr(fitted, name)
    state["deaths"] = fitted.mortality * (fitted.recovered - fitted.vaccinated)
    state["filters"] = fitted.filters()
    signal = (state["filters"] * fitted.filter_weights).sum(1)
    percent = np.logaddexp(0, signal) + fitted.unemployment_bias
    state["unemployed"] = percent * fitted.population / 100
    away = (fitted.sick * fitted.infected + state["deaths"]) * fitted.working_age
    workers = fitted.working_age * fitted.population - away - state["unemployed"]
    state["output"] = np.maximum(workers, 0) * fitted.daily_output
    state["level"] = fitted.levels[-1]
    for age in range(DELAY):
        state["past"][:, -age % DELAY] = fitted.levels[-1 - age]
    return first
