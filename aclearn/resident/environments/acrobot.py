"""Acrobot (Sutton 1996; the book's equations), with the constants of gymnasium's Acrobot-v1."""

import math

import numpy as np
from gymnasium import spaces

from aclearn.resident.environment import NoParams, ResidentEnv
from aclearn.resident.warp_setup import wp

PI = math.pi
MAX_VELOCITY_1, MAX_VELOCITY_2 = 4.0 * PI, 9.0 * PI
DT = 0.2
# Both links have mass 1 kg, length 1 m, centre of mass at 0.5 m and moment of inertia 1 kg m².
GRAVITY = 9.8
_BOUNDS = np.array([1.0, 1.0, 1.0, 1.0, MAX_VELOCITY_1, MAX_VELOCITY_2], np.float32)
vec6 = wp.types.vector(length=6, dtype=wp.float32)


@wp.struct
class State:
    """Angles [rad] of the first link from below and of the second from the first; their rates."""

    theta1: wp.float32
    theta2: wp.float32
    velocity1: wp.float32
    velocity2: wp.float32


@wp.func
def reset(rng: wp.uint32, p: NoParams) -> State:
    """Every number uniform in ±0.1."""
    s = State()
    s.theta1 = wp.randf(rng, -0.1, 0.1)
    s.theta2 = wp.randf(rng, -0.1, 0.1)
    s.velocity1 = wp.randf(rng, -0.1, 0.1)
    s.velocity2 = wp.randf(rng, -0.1, 0.1)
    return s


@wp.func
def derivative(s: wp.vec4, torque: wp.float32) -> wp.vec4:
    """The rates of the four numbers of a state."""
    cos2 = wp.cos(s[1])
    sin2 = wp.sin(s[1])
    d1 = 0.25 + (1.25 + cos2) + 2.0
    d2 = 0.25 + 0.5 * cos2 + 1.0
    phi2 = 0.5 * GRAVITY * wp.cos(s[0] + s[1] - PI / 2.0)
    phi1 = (
        -0.5 * s[3] * s[3] * sin2
        - s[3] * s[2] * sin2
        + 1.5 * GRAVITY * wp.cos(s[0] - PI / 2.0)
        + phi2
    )
    acceleration2 = (torque + d2 / d1 * phi1 - 0.5 * s[2] * s[2] * sin2 - phi2) / (
        1.25 - d2 * d2 / d1
    )
    acceleration1 = -(d2 * acceleration2 + phi1) / d1
    return wp.vec4(s[2], s[3], acceleration1, acceleration2)


@wp.func
def wrapped(angle: wp.float32) -> wp.float32:
    """The angle in [-π, π]."""
    while angle > PI:
        angle = angle - 2.0 * PI
    while angle < -PI:
        angle = angle + 2.0 * PI
    return angle


@wp.func
def step(s: State, action: wp.int32, rng: wp.uint32, p: NoParams):
    """Torque -1, 0 or 1 N m on the second joint; one step of Runge and Kutta's method."""
    torque = wp.float32(action - 1)
    y = wp.vec4(s.theta1, s.theta2, s.velocity1, s.velocity2)
    k1 = derivative(y, torque)
    k2 = derivative(y + k1 * (0.5 * DT), torque)
    k3 = derivative(y + k2 * (0.5 * DT), torque)
    k4 = derivative(y + k3 * DT, torque)
    y = y + (k1 + k2 * 2.0 + k3 * 2.0 + k4) * (DT / 6.0)
    s.theta1 = wrapped(y[0])
    s.theta2 = wrapped(y[1])
    s.velocity1 = wp.clamp(y[2], -MAX_VELOCITY_1, MAX_VELOCITY_1)
    s.velocity2 = wp.clamp(y[3], -MAX_VELOCITY_2, MAX_VELOCITY_2)
    terminated = -wp.cos(s.theta1) - wp.cos(s.theta2 + s.theta1) > 1.0
    return s, wp.where(terminated, 0.0, -1.0), terminated


@wp.func
def observe(s: State, p: NoParams) -> vec6:
    """Cosine and sine of both angles, and both velocities."""
    return vec6(
        wp.cos(s.theta1),
        wp.sin(s.theta1),
        wp.cos(s.theta2),
        wp.sin(s.theta2),
        s.velocity1,
        s.velocity2,
    )


ACROBOT = ResidentEnv(
    "Acrobot",
    State,
    reset,
    step,
    observe,
    observation_space=spaces.Box(-_BOUNDS, _BOUNDS),
    action_space=spaces.Discrete(3),
    time_limit=500,
)
