"""How the classic-control environments compare with gymnasium's."""

from __future__ import annotations

import math

#: The fields of our states in the order of gymnasium's `state`.
FIELDS = {
    "CartPole": ("x", "x_dot", "theta", "theta_dot"),
    "Acrobot": ("theta1", "theta2", "velocity1", "velocity2"),
    "Pendulum": ("theta", "theta_dot"),
    "MountainCar": ("position", "velocity"),
    "MountainCarContinuous": ("position", "velocity"),
}
#: Absolute, of every field: float32 against float64. Pendulum's angle grows to 80 rad, its cost to
#: 16; Acrobot's velocities go to 28 rad/s.
TOLERANCES = {
    "CartPole": 1e-6,
    "Acrobot": 1e-5,
    "Pendulum": 1e-5,
    "MountainCar": 1e-6,
    "MountainCarContinuous": 1e-6,
}
PERIODS = {"Acrobot": {"theta1": 2 * math.pi, "theta2": 2 * math.pi}}
