"""Discrete Tag (Lan et al. 2021, WarpDrive): taggers catch one runner on a grid."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import Field

from aclearn.config import Group, Whole
from aclearn.errors import ArgumentError
from aclearn.resident.pictures import BLUE, PINK, dots
from aclearn.resident.warp_setup import wp
from aclearn.resident.world import AgentKind, ResidentWorld

#: Actions: stay, and a step along each axis.
_CHOICES = 5


@wp.struct
class World:
    """The number of steps of the episode."""

    time: wp.int32


@wp.struct
class Agent:
    """The cell, and whether the last move hit a wall."""

    loc_x: wp.int32
    loc_y: wp.int32
    hit_wall: wp.bool


@wp.struct
class Params:
    """Cells at a reset `[n]`; what is taken and given at walls, in each step, and at a tag."""

    start_x: wp.array(dtype=wp.int32)
    start_y: wp.array(dtype=wp.int32)
    wall: wp.float32
    step: wp.float32
    tagged: wp.float32
    caught: wp.float32


class GridworldRules(Group):
    """WarpDrive's keys of Tag on a grid, with the defaults of its class."""

    num_taggers: Whole = Field(10, ge=1, description="agents that hunt the runner")
    # squared distances must fit into 32 bits
    grid_length: Whole = Field(10, ge=1, le=10_000, description="L; an axis has the cells 0 to L")
    episode_length: Whole = Field(100, ge=1, description="steps of an episode")
    wall_hit_penalty: float = Field(
        0.1, description="taken from an agent that would leave the grid, and stays in its cell"
    )
    tag_reward_for_tagger: float = Field(10.0, description="to every tagger, for a tag")
    tag_penalty_for_runner: float = Field(2.0, description="taken from the runner, for a tag")
    step_cost_for_tagger: float = Field(
        0.01, description="taken from a tagger and given to the runner in a step without a tag"
    )
    use_full_observation: bool = Field(True, description="an agent observes all others")


def tag_gridworld(
    *, start: Mapping[str, Sequence[int]] | None = None, **config: Any
) -> ResidentWorld:
    """Tag on a grid by WarpDrive's keys (`GridworldRules`).

    Taggers have the agents' numbers below `num_taggers` and type 0, the runner has the last number
    and type 1. It is tagged when a tagger stands in its cell after all have moved; two that swap
    their cells pass each other. That ends the episode.

    Args:
        start: `start_x` and `start_y` `[n]`, the cells at every reset; None: the taggers begin in
            the middle and the runner in a corner.

    With full observations an agent sees places and types of all, which one it is, and the time
    (4n + 1 numbers); else its own place, that of the runner or, for the runner, of the nearest
    tagger, its type and the time.

    Raises:
        ConfigError: a key or a value does not fit; one line for each.
        ArgumentError: `start` does not fit.
    """
    rules = GridworldRules(**config)
    runner, L, full = rules.num_taggers, rules.grid_length, rules.use_full_observation
    n = runner + 1
    start_x, start_y = _start(start, n, L)
    size = 4 * n + 1 if full else 6
    functions = dict(_functions(n, L, rules.episode_length, full))

    def make_params(device: Any, envs: int, **_config: Any) -> Any:
        # the keys have made the world already
        made = Params()
        made.start_x = wp.array(start_x, dtype=wp.int32, device=device)
        made.start_y = wp.array(start_y, dtype=wp.int32, device=device)
        made.wall, made.step = rules.wall_hit_penalty, rules.step_cost_for_tagger
        made.tagged, made.caught = rules.tag_reward_for_tagger, rules.tag_penalty_for_runner
        return made

    def draw(state: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
        colours = np.array([PINK] * runner + [BLUE])
        order = np.r_[runner, :runner]  # the taggers last: a tag is seen
        x, y = state["loc_x"][order], state["loc_y"][order]
        return dots(x, y, colours[order], low=-0.5, high=L + 0.5, radius=0.4)

    kind = AgentKind(
        "player",
        (*(f"tagger_{i}" for i in range(runner)), "runner_0"),
        functions.pop("move"),
        functions.pop("observe"),
        observation_space=spaces.Box(0.0, np.inf, (size,), np.float32),
        action_space=spaces.Discrete(_CHOICES),
    )
    return ResidentWorld(
        "tag_gridworld",
        World,
        Agent,
        **functions,
        kinds=(kind,),
        time_limit=rules.episode_length,
        length_key="episode_length",
        params=Params,
        make_params=make_params,
        draw=draw,
    )


def _start(start: Mapping[str, Sequence[int]] | None, n: int, L: int) -> tuple[Any, Any]:
    """Cells of n agents at a reset."""
    if start is None:
        middle = [L // 2] * (n - 1)
        return [*middle, 0], [*middle, 0]
    if not isinstance(start, Mapping) or start.keys() != {"start_x", "start_y"}:
        given_keys = ", ".join(start) if isinstance(start, Mapping) else repr(start)
        raise ArgumentError(
            f"tag_gridworld: start: expected start_x and start_y, got {given_keys or 'none'}"
        )
    for key, cells in start.items():
        given = np.asarray(cells)
        if given.shape != (n,) or given.dtype.kind not in "iu" or not _within(given, L):
            raise ArgumentError(
                f"tag_gridworld: start: {key}: expected {n} integers from 0 to {L}, one for each "
                f"agent, got {np.asarray(cells).tolist()}"
            )
    return list(start["start_x"]), list(start["start_y"])


def _within(cells: Any, L: int) -> bool:
    return bool(((cells >= 0) & (cells <= L)).all())


@lru_cache
def _functions(n: int, L: int, T: int, full: bool) -> dict[str, Any]:
    """Functions for n agents, cells 0 to L and T steps."""
    runner = n - 1

    @wp.func
    def reset_world(e: wp.int32, rng: wp.uint32, p: Params) -> World:
        return World()

    @wp.func
    def reset_agent(world: World, a: wp.int32, rng: wp.uint32, p: Params) -> Agent:
        agent = Agent()
        agent.loc_x = p.start_x[a]
        agent.loc_y = p.start_y[a]
        return agent

    @wp.func
    def move(
        agent: Agent, world: World, a: wp.int32, action: wp.int32, rng: wp.uint32, p: Params
    ) -> Agent:
        x = agent.loc_x + wp.where(action == 1, 1, 0) - wp.where(action == 2, 1, 0)
        y = agent.loc_y + wp.where(action == 3, 1, 0) - wp.where(action == 4, 1, 0)
        agent.loc_x = wp.clamp(x, 0, wp.static(L))
        agent.loc_y = wp.clamp(y, 0, wp.static(L))
        agent.hit_wall = agent.loc_x != x or agent.loc_y != y
        return agent

    @wp.func
    def is_tagged(agents: wp.array(dtype=Agent)) -> wp.bool:
        tagged = wp.bool(False)
        for j in range(wp.static(runner)):
            tagged = tagged or (
                agents[j].loc_x == agents[wp.static(runner)].loc_x
                and agents[j].loc_y == agents[wp.static(runner)].loc_y
            )
        return tagged

    @wp.func
    def interact(
        world: World,
        agents: wp.array(dtype=Agent),
        in_game: wp.array(dtype=wp.bool),
        a: wp.int32,
        p: Params,
    ):
        reward = wp.where(agents[a].hit_wall, -p.wall, 0.0)
        if is_tagged(agents):
            reward += wp.where(a == wp.static(runner), -p.caught, p.tagged)
        else:
            reward += wp.where(a == wp.static(runner), p.step, -p.step)
        return reward, False

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
        world.time = world.time + 1
        return world, is_tagged(agents)

    @wp.func
    def observe_all(
        world: World,
        agents: wp.array(dtype=Agent),
        in_game: wp.array(dtype=wp.bool),
        a: wp.int32,
        p: Params,
        row: wp.array(dtype=wp.float32),
    ):
        for j in range(wp.static(n)):
            row[j] = wp.float32(agents[j].loc_x) / wp.static(float(L))
            row[wp.static(n) + j] = wp.float32(agents[j].loc_y) / wp.static(float(L))
            row[wp.static(2 * n) + j] = wp.where(j == wp.static(runner), 1.0, 0.0)
            row[wp.static(3 * n) + j] = wp.where(j == a, 1.0, 0.0)
        row[wp.static(4 * n)] = wp.float32(world.time) / wp.static(float(T))

    @wp.func
    def observe_nearest(
        world: World,
        agents: wp.array(dtype=Agent),
        in_game: wp.array(dtype=wp.bool),
        a: wp.int32,
        p: Params,
        row: wp.array(dtype=wp.float32),
    ):
        x = agents[a].loc_x
        y = agents[a].loc_y
        other = wp.int32(runner)
        if a == wp.static(runner):
            nearest = wp.int32(wp.static(4 * L * L))
            for j in range(wp.static(runner)):
                dx = agents[j].loc_x - x
                dy = agents[j].loc_y - y
                if dx * dx + dy * dy < nearest:  # of equal ones the lowest number
                    nearest = dx * dx + dy * dy
                    other = j
        row[0] = wp.float32(x) / wp.static(float(L))
        row[1] = wp.float32(y) / wp.static(float(L))
        row[2] = wp.float32(agents[other].loc_x) / wp.static(float(L))
        row[3] = wp.float32(agents[other].loc_y) / wp.static(float(L))
        row[4] = wp.where(a == wp.static(runner), 1.0, 0.0)
        row[5] = wp.float32(world.time) / wp.static(float(T))

    return {
        "reset_world": reset_world,
        "reset_agent": reset_agent,
        "move": move,
        "interact": interact,
        "step_world": step_world,
        "observe": observe_all if full else observe_nearest,
    }
