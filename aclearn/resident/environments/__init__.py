"""The classic-control environments as resident ones, with gymnasium's constants."""

from __future__ import annotations

from aclearn.resident.environment import ResidentEnv
from aclearn.resident.environments.acrobot import ACROBOT
from aclearn.resident.environments.cartpole import CARTPOLE
from aclearn.resident.environments.mountain_car import MOUNTAIN_CAR, MOUNTAIN_CAR_CONTINUOUS
from aclearn.resident.environments.pendulum import PENDULUM

#: Ours by name.
ENVIRONMENTS: dict[str, ResidentEnv] = {
    env.name: env for env in (CARTPOLE, ACROBOT, PENDULUM, MOUNTAIN_CAR, MOUNTAIN_CAR_CONTINUOUS)
}
