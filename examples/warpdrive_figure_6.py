"""WarpDrive's figure 6 (Lan et al. 2021): an environment of several agents on one device.

    python examples/warpdrive_figure_6.py

Taggers and runners chase each other round a circle. What the paper's Python class and its CUDA C
step do is here one source, for CPU and GPU. docs/warpdrive.md has WarpDrive's words and ours.
"""

import numpy as np
import torch
from gymnasium import spaces

from aclearn.resident import AgentKind, ResidentWorld, make, wp

TAGGERS, RUNNERS = 2, 3
AGENTS = (*(f"tagger_{i}" for i in range(TAGGERS)), *(f"runner_{i}" for i in range(RUNNERS)))
CELLS = 24  # of the circle


@wp.struct
class World:
    """What is no agent's: the time."""

    time: wp.int32


@wp.struct
class Agent:
    """What is each agent's: its cell."""

    loc_x: wp.int32


@wp.struct
class Params:
    """What stays the same."""

    start_x: wp.array(dtype=wp.int32)
    tag_reward: wp.float32


def make_params(device, envs, tag_reward=1.0):
    """The data that is pushed to the device once (the paper's `get_data_dictionary`).

    A variable with `save_copy_and_apply_at_reset` is a parameter that `reset_agent` reads.
    """
    params = Params()
    start_x = np.arange(len(AGENTS)) * CELLS // len(AGENTS)
    params.start_x = wp.array(start_x, dtype=wp.int32, device=device)
    params.tag_reward = tag_reward
    return params


@wp.func
def reset_world(e: wp.int32, rng: wp.uint32, p: Params) -> World:
    """Begin an episode."""
    return World()


@wp.func
def reset_agent(world: World, a: wp.int32, rng: wp.uint32, p: Params) -> Agent:
    """Put agent a where it starts."""
    agent = Agent()
    agent.loc_x = p.start_x[a]
    return agent


@wp.func
def move(agent: Agent, world: World, a: wp.int32, action: wp.int32, rng: wp.uint32, p: Params):
    """One agent's part of the paper's `cuda_step`: back, stay or forward."""
    agent.loc_x = (agent.loc_x + action - 1 + CELLS) % CELLS
    return agent


@wp.func
def interact(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
):
    """Its reward, and whether it leaves the game, once all have moved: a tag is a shared cell."""
    met = wp.int32(0)
    for j in range(TAGGERS + RUNNERS):
        if in_game[j] and (j < TAGGERS) != (a < TAGGERS) and agents[j].loc_x == agents[a].loc_x:
            met += 1
    if a < TAGGERS:
        return p.tag_reward * wp.float32(met), False
    return -p.tag_reward * wp.float32(wp.min(met, 1)), met > 0


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
    """Count the step; the episode ends when no runner is left."""
    world.time += 1
    runners = wp.int32(0)
    for j in range(TAGGERS, TAGGERS + RUNNERS):
        if in_game[j] and not left[j]:
            runners += 1
    return world, runners == 0


@wp.func
def observe(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.float32),
):
    """Write what agent a sees: how far ahead the others are, and who plays."""
    for j in range(TAGGERS + RUNNERS):
        ahead = (agents[j].loc_x - agents[a].loc_x + CELLS) % CELLS
        row[2 * j] = wp.float32(ahead) / wp.float32(CELLS)
        row[2 * j + 1] = wp.where(in_game[j], 1.0, 0.0)


CHASE = ResidentWorld(
    "Chase",
    World,
    Agent,
    reset_world,
    reset_agent,
    interact,
    step_world,
    kinds=(
        AgentKind(
            "player",
            AGENTS,
            move,
            observe,
            observation_space=spaces.Box(0.0, 1.0, (2 * len(AGENTS),), np.float32),
            action_space=spaces.Discrete(3),
        ),
    ),
    time_limit=50,
    params=Params,
    make_params=make_params,
)


def main() -> None:
    """Step 2000 environments at random, and look at their arrays."""
    envs = make(CHASE, envs=2000, device="auto", tag_reward=10.0)
    observations = envs.reset()  # [2000, 5, 10], on the device
    loc_x = envs.data["loc_x"]  # [2000, 5]: the agents' cells, a torch tensor without a copy
    loc_x[:, 0] = 0  # writes them
    generator = torch.Generator(observations.device).manual_seed(1)
    for _ in range(200):
        actions = torch.randint(
            3, (2000, len(AGENTS)), generator=generator, device=observations.device
        )
        step = envs.step(actions)  # observations, rewards, terminated, truncated, in_game
    sums = envs.take_sums()
    print(
        f"{sums.episodes} episodes of agents; mean cell {loc_x.double().mean():.1f}; "
        f"{step.in_game.double().mean():.0%} are in the game"
    )


if __name__ == "__main__":
    main()
