"""Pendulum swing-up, with the constants of gymnasium's Pendulum-v1."""

import math

import numpy as np
from gymnasium import spaces

from aclearn.resident.environment import ResidentEnv
from aclearn.resident.warp_setup import wp

PI = math.pi
MAX_SPEED, MAX_TORQUE, DT = 8.0, 2.0, 0.05
_BOUNDS = np.array([1.0, 1.0, MAX_SPEED], np.float32)
vec1 = wp.types.vector(length=1, dtype=wp.float32)


@wp.struct
class State:
    """Angle from above [rad], not wrapped, and its rate per second."""

    theta: wp.float32
    theta_dot: wp.float32


@wp.struct
class Params:
    """Gravity [m/s²]; mass and length are 1."""

    gravity: wp.float32


def make_params(device, g=10.0):
    """The parameters; `device` is not needed, since they hold no arrays."""
    made = Params()
    made.gravity = g
    return made


@wp.func
def reset(rng: wp.uint32, p: Params) -> State:
    """The angle uniform in ±π, the speed in ±1."""
    s = State()
    s.theta = wp.randf(rng, -PI, PI)
    s.theta_dot = wp.randf(rng, -1.0, 1.0)
    return s


@wp.func
def step(s: State, action: vec1, rng: wp.uint32, p: Params):
    """A torque of up to 2 N m; the cost is that of the state before."""
    torque = action[0]
    turns = wp.floor((s.theta + PI) / (2.0 * PI))
    angle = s.theta - turns * 2.0 * PI
    cost = angle * angle + 0.1 * s.theta_dot * s.theta_dot + 0.001 * torque * torque
    speed = s.theta_dot + (1.5 * p.gravity * wp.sin(s.theta) + 3.0 * torque) * DT
    s.theta_dot = wp.clamp(speed, -MAX_SPEED, MAX_SPEED)
    s.theta = s.theta + s.theta_dot * DT
    return s, -cost, False


@wp.func
def observe(s: State, p: Params) -> wp.vec3:
    """Cosine and sine of the angle, and the speed."""
    return wp.vec3(wp.cos(s.theta), wp.sin(s.theta), s.theta_dot)


PENDULUM = ResidentEnv(
    "Pendulum",
    State,
    reset,
    step,
    observe,
    observation_space=spaces.Box(-_BOUNDS, _BOUNDS),
    action_space=spaces.Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32),
    time_limit=200,
    params=Params,
    make_params=make_params,
)
