"""CartPole (Barto, Sutton & Anderson 1983), with the constants of gymnasium's CartPole-v1."""

import math

import numpy as np
from gymnasium import spaces

from aclearn.resident.environment import ResidentEnv
from aclearn.resident.warp_setup import wp

ANGLE_LIMIT = 12.0 * 2.0 * math.pi / 360.0
X_LIMIT = 2.4
_BOUNDS = np.array([2 * X_LIMIT, np.inf, 2 * ANGLE_LIMIT, np.inf], np.float32)


@wp.struct
class State:
    """Position [m] and angle [rad], and their rates per second."""

    x: wp.float32
    x_dot: wp.float32
    theta: wp.float32
    theta_dot: wp.float32


@wp.struct
class Params:
    """Gravity [m/s²], masses [kg], half the pole's length [m], force [N], time step [s]."""

    gravity: wp.float32
    cart_mass: wp.float32
    pole_mass: wp.float32
    half_length: wp.float32
    force: wp.float32
    tau: wp.float32


def make_params(device, gravity=9.8, cart_mass=1.0, pole_mass=0.1, half_length=0.5, force=10.0):
    """The parameters; `device` is not needed, since they hold no arrays."""
    made = Params()
    made.gravity, made.cart_mass, made.pole_mass = gravity, cart_mass, pole_mass
    made.half_length, made.force, made.tau = half_length, force, 0.02
    return made


@wp.func
def reset(rng: wp.uint32, p: Params) -> State:
    """Every number uniform in ±0.05."""
    s = State()
    s.x = wp.randf(rng, -0.05, 0.05)
    s.x_dot = wp.randf(rng, -0.05, 0.05)
    s.theta = wp.randf(rng, -0.05, 0.05)
    s.theta_dot = wp.randf(rng, -0.05, 0.05)
    return s


@wp.func
def step(s: State, action: wp.int32, rng: wp.uint32, p: Params):
    """Push left (0) or right (1); Euler's method."""
    force = p.force * (2.0 * wp.float32(action) - 1.0)
    total_mass = p.cart_mass + p.pole_mass
    pole_moment = p.pole_mass * p.half_length
    cos = wp.cos(s.theta)
    sin = wp.sin(s.theta)
    temp = (force + pole_moment * s.theta_dot * s.theta_dot * sin) / total_mass
    inertia = p.half_length * (4.0 / 3.0 - p.pole_mass * cos * cos / total_mass)
    theta_acc = (p.gravity * sin - cos * temp) / inertia
    x_acc = temp - pole_moment * theta_acc * cos / total_mass
    s.x = s.x + p.tau * s.x_dot
    s.x_dot = s.x_dot + p.tau * x_acc
    s.theta = s.theta + p.tau * s.theta_dot
    s.theta_dot = s.theta_dot + p.tau * theta_acc
    return s, 1.0, wp.abs(s.x) > X_LIMIT or wp.abs(s.theta) > ANGLE_LIMIT


@wp.func
def observe(s: State, p: Params) -> wp.vec4:
    """The state."""
    return wp.vec4(s.x, s.x_dot, s.theta, s.theta_dot)


CARTPOLE = ResidentEnv(
    "CartPole",
    State,
    reset,
    step,
    observe,
    observation_space=spaces.Box(-_BOUNDS, _BOUNDS),
    action_space=spaces.Discrete(2),
    time_limit=500,
    params=Params,
    make_params=make_params,
)
