"""Continuous Tag (Lan et al. 2021, §5.1): taggers hunt runners on a square.

The rules are those of WarpDrive's CPU class. Where its GPU code gives another result, or one that
depends on the order of threads, the CPU's is taken: every tag counts for its tagger, also of two
in one step; a runner that is tagged in the last step and leaves gets no reward of the end; of two
taggers at the same distance the lower number has the tag.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aclearn.resident.environments.cells import (
    NOBODY,
    ROUNDING,
    Cells,
    along,
    cells_bytes,
    clear_cells,
    count_agent,
    end_count,
    make_cells,
    nearest_function,
    put_agent,
)
from aclearn.resident.environments.sine import cosine_sine
from aclearn.resident.environments.tag_rules import Start, TagRules
from aclearn.resident.pictures import BLUE, PINK, dots
from aclearn.resident.warp_setup import wp
from aclearn.resident.world import AgentKind, ResidentWorld

_TWO_PI = wp.constant(wp.float32(2.0 * math.pi))


@wp.struct
class World:
    """The environment's number, and the steps of the episode."""

    number: wp.int32
    time: wp.int32


@wp.struct
class Agent:
    """Where an agent is, how it moves, and whether the last step brought it to an edge."""

    loc_x: wp.float32
    loc_y: wp.float32
    direction: wp.float32
    speed: wp.float32
    acceleration: wp.float32
    at_edge: wp.bool


@wp.struct
class Params:
    """The rules; arrays `[A]` by agent; the tagger of each runner in this step `[N, A]`."""

    tagger: wp.array(dtype=wp.bool)
    fastest: wp.array(dtype=wp.float32)
    accelerations: wp.array(dtype=wp.float32)
    turns: wp.array(dtype=wp.float32)
    drawn: wp.bool
    start_x: wp.array(dtype=wp.float32)
    start_y: wp.array(dtype=wp.float32)
    start_direction: wp.array(dtype=wp.float32)
    tagged_by: wp.array2d(dtype=wp.int32)
    cells: Cells
    agents: wp.int32
    side: wp.float32
    diagonal: wp.float32
    max_speed: wp.float32
    reach: wp.float32
    episode_length: wp.int32
    exits: wp.bool
    edge_hit_penalty: wp.float32
    step_penalty_for_tagger: wp.float32
    step_reward_for_runner: wp.float32
    tag_reward_for_tagger: wp.float32
    tag_penalty_for_runner: wp.float32
    end_of_game_reward_for_runner: wp.float32


@wp.func
def reset_world(e: wp.int32, rng: wp.uint32, p: Params) -> World:
    """The begin of an episode."""
    world = World()
    world.number = e
    return world


@wp.func
def reset_agent(world: World, a: wp.int32, rng: wp.uint32, p: Params) -> Agent:
    """At rest, at the given place or at one that is drawn."""
    agent = Agent()
    if p.drawn:
        agent.loc_x = wp.randf(rng, 0.0, p.side)
        agent.loc_y = wp.randf(rng, 0.0, p.side)
        agent.direction = wp.float32(wp.randi(rng, 0, 4)) * (_TWO_PI / 4.0)
    else:
        agent.loc_x = p.start_x[a]
        agent.loc_y = p.start_y[a]
        agent.direction = p.start_direction[a]
    return agent


@wp.func
def turn_and_go(
    agent: Agent, a: wp.int32, change: wp.float32, turn: wp.float32, p: Params
) -> Agent:
    """A step by changes of acceleration and direction; a square stops it."""
    direction = wp.mod(agent.direction + turn, _TWO_PI)
    if direction < 0.0:
        direction += _TWO_PI
    acceleration = agent.acceleration + change
    speed = wp.clamp(agent.speed + acceleration, 0.0, p.fastest[a])
    if speed <= 0.0 or speed >= p.fastest[a]:
        acceleration = wp.float32(0.0)
    heading = cosine_sine(direction)
    x = agent.loc_x + speed * heading[0]
    y = agent.loc_y + speed * heading[1]
    agent.at_edge = x < 0.0 or x > p.side or y < 0.0 or y > p.side
    agent.loc_x = wp.clamp(x, 0.0, p.side)
    agent.loc_y = wp.clamp(y, 0.0, p.side)
    agent.direction = direction
    agent.acceleration = acceleration
    agent.speed = speed
    return agent


@wp.func
def move_by_level(
    agent: Agent, world: World, a: wp.int32, action: wp.vec2i, rng: wp.uint32, p: Params
) -> Agent:
    """A step by two levels."""
    return turn_and_go(agent, a, p.accelerations[action[0]], p.turns[action[1]], p)


@wp.func
def move_by_number(
    agent: Agent, world: World, a: wp.int32, action: wp.vec2, rng: wp.uint32, p: Params
) -> Agent:
    """A step by two numbers."""
    return turn_and_go(agent, a, action[0], action[1], p)


@wp.func
def prepare(
    world: World, agents: wp.array(dtype=Agent), in_game: wp.array(dtype=wp.bool), p: Params
):
    """Sort the agents of the game into cells."""
    e = world.number
    clear_cells(p.cells, e)
    for a in range(p.agents):
        if in_game[a]:
            count_agent(p.cells, e, agents[a].loc_x, agents[a].loc_y)
    end_count(p.cells, e)
    for a in range(p.agents):
        if in_game[a]:
            put_agent(p.cells, e, a, agents[a].loc_x, agents[a].loc_y)


@wp.func
def tagger_of(world: World, x: wp.float32, y: wp.float32, p: Params) -> wp.int32:
    """The nearest tagger within reach of a place; of equal distances the lowest number."""
    e = world.number
    found = NOBODY
    least = p.reach
    reach = p.reach + ROUNDING * p.cells.width
    left = along(p.cells, x - reach)
    right = along(p.cells, x + reach)
    for row in range(along(p.cells, y - reach), along(p.cells, y + reach) + 1):
        begin = p.cells.first[e, row * p.cells.count + left]
        end = p.cells.first[e, row * p.cells.count + right + 1]
        for at in range(begin, end):
            other = p.cells.agents[e, at]
            if p.tagger[other]:
                dx = x - p.cells.places[e, at][0]
                dy = y - p.cells.places[e, at][1]
                distance = wp.sqrt(dx * dx + dy * dy)
                if distance < least or (found != NOBODY and distance == least and other < found):
                    least = distance
                    found = other
    return found


@wp.func
def interact(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
):
    """The reward of an agent but for what a tagger has of its tags; a tagged runner leaves."""
    agent = agents[a]
    reward = wp.float32(0.0)
    leaves = wp.bool(False)
    if agent.at_edge:
        reward += p.edge_hit_penalty
    if p.tagger[a]:
        return reward + p.step_penalty_for_tagger, leaves
    reward += p.step_reward_for_runner
    by = tagger_of(world, agent.loc_x, agent.loc_y, p)
    p.tagged_by[world.number, a] = by
    if by != NOBODY:
        reward += p.tag_penalty_for_runner
        leaves = p.exits
    if not leaves and world.time + 1 >= p.episode_length:
        reward += p.end_of_game_reward_for_runner
    return reward, leaves


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
    """Reward the taggers for their tags, in the order of the runners."""
    anybody = wp.bool(False)
    for a in range(p.agents):
        if in_game[a] and not p.tagger[a]:
            by = p.tagged_by[world.number, a]
            if by != NOBODY:
                rewards[by] = rewards[by] + p.tag_reward_for_tagger
            anybody = anybody or not left[a]
    world.time += 1
    return world, not anybody


@wp.func
def show_other(
    row: wp.array(dtype=wp.float32),
    columns: wp.int32,
    column: wp.int32,
    agent: Agent,
    other: Agent,
    tagger: wp.bool,
    p: Params,
):
    """What an agent sees of another one of the game, but for its flag."""
    row[column] = (other.loc_x - agent.loc_x) / p.diagonal
    row[columns + column] = (other.loc_y - agent.loc_y) / p.diagonal
    row[2 * columns + column] = (other.speed - agent.speed) / p.max_speed
    row[3 * columns + column] = (other.acceleration - agent.acceleration) / p.max_speed
    row[4 * columns + column] = (other.direction - agent.direction) / _TWO_PI
    row[5 * columns + column] = wp.where(tagger, 1.0, 0.0)


@wp.func
def observe_all(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.float32),
):
    """Every other agent; one that left the game sees who plays which part, and who is in it."""
    others = p.agents - 1
    agent = agents[a]
    for column in range(others):
        j = column
        if j >= a:
            j += 1
        if in_game[a]:
            other = agents[j]
            if not in_game[j]:  # it stays where it was
                other.speed = 0.0
                other.acceleration = 0.0
                other.direction = 0.0
            show_other(row, others, column, agent, other, p.tagger[j], p)
        else:
            for feature in range(5):
                row[feature * others + column] = 0.0
            row[5 * others + column] = wp.where(p.tagger[j], 1.0, 0.0)
        row[6 * others + column] = wp.where(in_game[j], 1.0, 0.0)
    row[7 * others] = wp.where(
        in_game[a], wp.float32(world.time) / wp.float32(p.episode_length), 0.0
    )


@lru_cache
def _observe_nearest(count: int) -> Any:
    """A function that observes the `count` nearest agents of the game, the nearest first."""
    nearest = nearest_function(count)

    @wp.func
    def observe(
        world: World,
        agents: wp.array(dtype=Agent),
        in_game: wp.array(dtype=wp.bool),
        a: wp.int32,
        p: Params,
        row: wp.array(dtype=wp.float32),
    ):
        for i in range(wp.static(7 * count + 1)):
            row[i] = 0.0
        if in_game[a]:
            agent = agents[a]
            seen = nearest(p.cells, world.number, a, agent.loc_x, agent.loc_y)
            for column in range(wp.static(count)):
                j = seen[column]
                if j != NOBODY:
                    show_other(row, wp.static(count), column, agent, agents[j], p.tagger[j], p)
                    row[wp.static(6 * count) + column] = 1.0
            row[wp.static(7 * count)] = wp.float32(world.time) / wp.float32(p.episode_length)

    return observe


def tag_continuous(*, start: Mapping[str, Any] | None = None, **config: Any) -> ResidentWorld:
    """Continuous Tag by WarpDrive's keys (`TagRules`).

    Agents are named `tagger_0`, … and `runner_0`, … in the order of their numbers. Their start is
    `start`, arrays `[A]`: `agent_types` (1 for a tagger), `start_x`, `start_y`, `start_direction`;
    without it, the taggers come first and each episode draws their places.

    Raises:
        ConfigError: a key or a value does not fit; one line for each.
        ArgumentError: `start` does not fit.
    """
    rules = TagRules(**config)
    given = None if start is None else Start.of(start, rules)
    tagger = np.arange(rules.agents) < rules.num_taggers if given is None else given.tagger
    full, near = rules.use_full_observation, rules.num_other_agents_observed
    if rules.continuous_actions:
        ends = ([rules.min_acceleration, rules.min_turn], [rules.max_acceleration, rules.max_turn])
        actions: spaces.Space[Any] = spaces.Box(*(np.array(end, np.float32) for end in ends))
    else:
        actions = spaces.MultiDiscrete(
            [rules.num_acceleration_levels + 1, rules.num_turn_levels + 1]
        )

    def make_params(device: Any, envs: int, **_config: Any) -> Any:
        # the keys have made the world already
        return _params(rules, tagger, given, device, envs)

    kind = AgentKind(
        "player",
        _names(tagger),
        move_by_number if rules.continuous_actions else move_by_level,
        observe_all if full else _observe_nearest(near),
        observation_space=spaces.Box(-np.inf, np.inf, (rules.observation_size,), np.float32),
        action_space=actions,
    )
    return ResidentWorld(
        "tag_continuous",
        World,
        Agent,
        reset_world,
        reset_agent,
        interact,
        step_world,
        kinds=(kind,),
        time_limit=rules.episode_length,
        length_key="episode_length",
        params=Params,
        params_bytes=4 * rules.agents + cells_bytes(rules.agents, _looked_for(rules)),
        make_params=make_params,
        prepare=prepare,
        draw=lambda state: _picture(state, tagger, rules.grid_length),
    )


def _picture(
    state: Mapping[str, NDArray[Any]], tagger: NDArray[np.bool_], side: float
) -> NDArray[np.uint8]:
    """The agents of the game, taggers in front."""
    shown = [a for a in np.argsort(tagger, kind="stable") if state["in_game"][a]]
    colours = np.where(tagger[:, None], PINK, BLUE)
    return dots(
        state["loc_x"][shown],
        state["loc_y"][shown],
        colours[shown],
        low=0.0,
        high=side,
        radius=side / (8.0 * math.sqrt(len(tagger))),
    )


def _names(tagger: NDArray[np.bool_]) -> tuple[str, ...]:
    numbers = np.where(tagger, np.cumsum(tagger), np.cumsum(~tagger)) - 1
    return tuple(
        f"{'tagger' if hunts else 'runner'}_{number}"
        for hunts, number in zip(tagger, numbers, strict=True)
    )


def _looked_for(rules: TagRules) -> int:
    """How many neighbours a search in the cells looks for."""
    return 0 if rules.use_full_observation else rules.num_other_agents_observed


def _params(
    rules: TagRules, tagger: NDArray[np.bool_], start: Start | None, device: Any, envs: int
) -> Any:
    p = Params()

    def floats(values: Any) -> Any:
        return wp.array(np.asarray(values, np.float32), dtype=wp.float32, device=device)

    p.tagger = wp.array(tagger, dtype=wp.bool, device=device)
    skills = np.where(tagger, rules.skill_level_tagger, rules.skill_level_runner)
    p.fastest = floats(rules.max_speed * skills)
    p.accelerations, p.turns = floats(rules.levels("acceleration")), floats(rules.levels("turn"))
    p.drawn = start is None
    if start is not None:
        p.start_x, p.start_y = floats(start.x), floats(start.y)
        p.start_direction = floats(start.direction)
    p.tagged_by = wp.zeros((envs, rules.agents), dtype=wp.int32, device=device)
    p.cells = make_cells(device, envs, rules.agents, rules.grid_length, _looked_for(rules))
    p.agents, p.side = rules.agents, rules.grid_length
    p.diagonal = math.sqrt(2.0) * rules.grid_length
    p.reach = rules.tagging_distance * rules.grid_length
    p.exits = rules.runner_exits_game_after_tagged
    for name in (
        "max_speed",
        "episode_length",
        "edge_hit_penalty",
        "step_penalty_for_tagger",
        "step_reward_for_runner",
        "tag_reward_for_tagger",
        "tag_penalty_for_runner",
        "end_of_game_reward_for_runner",
    ):
        setattr(p, name, getattr(rules, name))
    return p
