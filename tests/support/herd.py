"""A small world with all that a world may have, and the same rules in NumPy."""

from typing import Any

import numpy as np
from gymnasium import spaces

from aclearn.resident import AgentKind, ResidentWorld, wp

SHEEP, LIMIT = 3, 9
DOG = SHEEP
#: float32, as the rules below.
STEP, FAR, PULL = np.float32(0.25), np.float32(2.5), np.float32(0.5)


@wp.struct
class World:
    """Steps of the episode, number of the environment, the sum of the sheep's rewards."""

    time: wp.int32
    number: wp.int32
    total: wp.float32


@wp.struct
class Agent:
    """A place, a direction, and steps that a sheep has left."""

    x: wp.float32
    heading: wp.vec2
    energy: wp.int32


@wp.struct
class Params:
    """The mass of the dog in each environment; working memory: how many play in each."""

    mass: wp.array(dtype=wp.float32)
    playing: wp.array(dtype=wp.int32)
    broken: wp.int32


def make_params(device, envs, broken=-1, heavier=1.0):
    """The dog of environment e weighs 1 to 3, by e; agent `broken` sees NaN at time 3."""
    made = Params()
    made.mass = wp.array(heavier * (1.0 + np.arange(envs) % 3), dtype=wp.float32, device=device)
    made.playing = wp.zeros(envs, dtype=wp.int32, device=device)
    made.broken = broken
    return made


@wp.func
def reset_world(e: wp.int32, rng: wp.uint32, p: Params) -> World:
    """Begin in environment e."""
    world = World()
    world.number = e
    return world


@wp.func
def reset_agent(world: World, a: wp.int32, rng: wp.uint32, p: Params) -> Agent:
    """A place within ±1; a sheep has 2 to 12 steps."""
    agent = Agent()
    agent.x = wp.randf(rng, -1.0, 1.0)
    agent.energy = wp.randi(rng, 2, 13)
    return agent


@wp.func
def move_sheep(
    agent: Agent, world: World, a: wp.int32, action: wp.int32, rng: wp.uint32, p: Params
) -> Agent:
    """A step left, none or right."""
    agent.x = agent.x + wp.float32(action - 1) * 0.25
    agent.heading = wp.vec2(agent.x, wp.float32(action))
    agent.energy = agent.energy - 1
    return agent


@wp.func
def move_dog(
    agent: Agent, world: World, a: wp.int32, action: wp.vec2, rng: wp.uint32, p: Params
) -> Agent:
    """Two pulls; a heavy dog moves slowly."""
    agent.x = agent.x + (action[0] + action[1]) / p.mass[world.number]
    return agent


@wp.func
def prepare(
    world: World, agents: wp.array(dtype=Agent), in_game: wp.array(dtype=wp.bool), p: Params
):
    """Count the sheep in the game."""
    count = wp.int32(0)
    for j in range(SHEEP):
        if in_game[j]:
            count += 1
    p.playing[world.number] = count


@wp.func
def interact(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
):
    """A sheep is to be near the dog, and leaves when it is tired; the dog leaves with the last."""
    if a == SHEEP:
        return 0.0, p.playing[world.number] == 0
    return 1.0 - wp.abs(agents[a].x - agents[SHEEP].x), agents[a].energy <= 0


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
    """The dog gets the sum of the sheep's rewards; it ends where the dog is far away."""
    world.time = world.time + 1
    total = wp.float32(0.0)
    for j in range(SHEEP):
        total = total + rewards[j]
    world.total = total
    rewards[SHEEP] = total
    return world, wp.abs(agents[SHEEP].x) > 2.5


@wp.func
def observe_sheep(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.float32),
):
    """Its place, and the way to the dog."""
    row[0] = agents[a].x
    row[1] = agents[SHEEP].x - agents[a].x
    if a == p.broken and world.time == 3:
        row[1] = wp.nan


@wp.func
def mask_sheep(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.bool),
):
    """No step further from the middle than 1."""
    row[0] = agents[a].x > -1.0
    row[1] = True
    row[2] = agents[a].x < 1.0


@wp.func
def observe_dog(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.float32),
):
    """Its place, the number of sheep, the last sum."""
    row[0] = agents[a].x
    row[1] = wp.float32(p.playing[world.number])
    row[2] = world.total


HERD = ResidentWorld(
    "Herd",
    World,
    Agent,
    reset_world,
    reset_agent,
    interact,
    step_world,
    kinds=(
        AgentKind(
            "sheep",
            tuple(f"sheep_{i}" for i in range(SHEEP)),
            move_sheep,
            observe_sheep,
            spaces.Box(-np.inf, np.inf, (2,), np.float32),
            spaces.Discrete(3),
            mask_sheep,
        ),
        AgentKind(
            "dog",
            ("rex",),
            move_dog,
            observe_dog,
            spaces.Box(-np.inf, np.inf, (3,), np.float32),
            spaces.Box(-1.0, 1.0, (2,), np.float32),
        ),
    ),
    time_limit=LIMIT,
    params=Params,
    make_params=make_params,
    prepare=prepare,
)


class NumpyHerd:
    """One world, which begins in a given state; `step` returns what its agents get."""

    def __init__(self, number: int, x: Any, energy: Any) -> None:
        self.mass = np.float32(1.0 + number % 3)
        self.x, self.energy = np.array(x, np.float32), np.array(energy)
        self.time, self.total = 0, np.float32(0.0)
        self.in_game, self.far = np.ones(SHEEP + 1, bool), FAR

    def step(self, sheep: Any, dog: Any) -> dict[str, Any]:
        """Actions of the sheep, and the two pulls of the dog."""
        self.time += 1
        for j in range(SHEEP):
            if self.in_game[j]:
                self.x[j] += np.float32(sheep[j] - 1) * STEP
                self.energy[j] -= 1
        self.x[DOG] += (np.float32(dog[0]) + np.float32(dog[1])) / self.mass
        took_part = self.in_game.copy()
        rewards, left = np.zeros(SHEEP + 1, np.float32), np.zeros(SHEEP + 1, bool)
        for j in range(SHEEP):
            if took_part[j]:
                rewards[j] = np.float32(1.0) - np.abs(self.x[j] - self.x[DOG])
                left[j] = self.energy[j] <= 0
        left[DOG] = not took_part[:SHEEP].any()
        self.total = np.float32(0.0)
        for j in range(SHEEP):
            self.total += rewards[j]
        rewards[DOG] = self.total
        self.in_game = took_part & ~left
        far = bool(np.abs(self.x[DOG]) > self.far)
        terminated = far or not self.in_game.any()
        return {
            "rewards": rewards,
            "took_part": took_part,
            "left": left,
            "terminated": terminated,
            "truncated": self.time >= LIMIT and not terminated,
            **self.shown(took_part),
        }

    def shown(self, took_part: Any = None) -> dict[str, Any]:
        """Observations and masks."""
        playing = (self.in_game if took_part is None else took_part)[:SHEEP].sum()
        x = self.x
        return {
            "sheep": np.stack([x[:SHEEP], x[DOG] - x[:SHEEP]], 1),
            "dog": np.array([x[DOG], playing, self.total], np.float32),
            "masks": np.stack([x[:SHEEP] > -1, np.ones(SHEEP, bool), x[:SHEEP] < 1], 1),
        }
