"""Both mountain cars (Moore 1990), with gymnasium's constants."""

import numpy as np
from gymnasium import spaces

from aclearn.resident.environment import ResidentEnv
from aclearn.resident.warp_setup import wp

MIN_POSITION, MAX_POSITION, MAX_SPEED = -1.2, 0.6, 0.07
FORCE, POWER, GRAVITY = 0.001, 0.0015, 0.0025
GOAL, GOAL_CONTINUOUS = 0.5, 0.45
vec1 = wp.types.vector(length=1, dtype=wp.float32)
_SPACE = spaces.Box(
    np.array([MIN_POSITION, -MAX_SPEED], np.float32),
    np.array([MAX_POSITION, MAX_SPEED], np.float32),
)


@wp.struct
class State:
    """Position, and its change in a step."""

    position: wp.float32
    velocity: wp.float32


@wp.struct
class Params:
    """Least velocity at the goal."""

    goal_velocity: wp.float32


def make_params(device, goal_velocity=0.0):
    """The parameters; `device` is not needed, since they hold no arrays."""
    made = Params()
    made.goal_velocity = goal_velocity
    return made


@wp.func
def reset(rng: wp.uint32, p: Params) -> State:
    """At rest, the position uniform in [-0.6, -0.4)."""
    s = State()
    s.position = wp.randf(rng, -0.6, -0.4)
    return s


@wp.func
def moved(s: State, push: wp.float32) -> State:
    """The state after a push; a wall on the left takes the speed."""
    velocity = s.velocity + push - GRAVITY * wp.cos(3.0 * s.position)
    s.velocity = wp.clamp(velocity, -MAX_SPEED, MAX_SPEED)
    s.position = wp.clamp(s.position + s.velocity, MIN_POSITION, MAX_POSITION)
    if s.position == MIN_POSITION and s.velocity < 0.0:
        s.velocity = 0.0
    return s


@wp.func
def step(s: State, action: wp.int32, rng: wp.uint32, p: Params):
    """Push left (0), not (1) or right (2); the reward is -1 in every step."""
    s = moved(s, wp.float32(action - 1) * FORCE)
    return s, -1.0, s.position >= GOAL and s.velocity >= p.goal_velocity


@wp.func
def step_continuous(s: State, action: vec1, rng: wp.uint32, p: Params):
    """Push by up to ±1; the reward is 100 at the goal, less 0.1 · push²."""
    s = moved(s, action[0] * POWER)
    terminated = s.position >= GOAL_CONTINUOUS and s.velocity >= p.goal_velocity
    reward = wp.where(terminated, 100.0, 0.0) - 0.1 * action[0] * action[0]
    return s, reward, terminated


@wp.func
def observe(s: State, p: Params) -> wp.vec2:
    """Position and velocity."""
    return wp.vec2(s.position, s.velocity)


MOUNTAIN_CAR = ResidentEnv(
    "MountainCar",
    State,
    reset,
    step,
    observe,
    observation_space=_SPACE,
    action_space=spaces.Discrete(3),
    time_limit=200,
    params=Params,
    make_params=make_params,
)
MOUNTAIN_CAR_CONTINUOUS = ResidentEnv(
    "MountainCarContinuous",
    State,
    reset,
    step_continuous,
    observe,
    observation_space=_SPACE,
    action_space=spaces.Box(-1.0, 1.0, (1,), np.float32),
    time_limit=999,
    params=Params,
    make_params=make_params,
)
