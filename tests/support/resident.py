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
#: Absolute: float32 against float64. Pendulum's angle grows to 80 rad, where float32 has steps of
#: 8e-6, and its cost to 16; Acrobot's velocities go to 28 rad/s; the continuous
#: mountain car's goal gives 100.
TOLERANCES = {
    "CartPole": 1e-6,
    "Acrobot": 1e-5,
    "Pendulum": {"theta": 1e-5, "theta_dot": 1e-5, "observation": 1e-5, "reward": 1e-4},
    "MountainCar": 1e-6,
    "MountainCarContinuous": {
        "position": 1e-6,
        "velocity": 1e-6,
        "observation": 1e-6,
        "reward": 1e-5,
    },
}
PERIODS = {"Acrobot": {"theta1": 2 * math.pi, "theta2": 2 * math.pi}}
