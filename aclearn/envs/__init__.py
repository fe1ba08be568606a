"""Groups of environments: Atari on the emulator's own vector environment, all others in a loop."""

from __future__ import annotations

from aclearn.envs.factory import make_policy_envs, make_vector_env, read_spec
from aclearn.envs.vector_env import VectorEnv

__all__ = [
    "VectorEnv",
    "make_policy_envs",
    "make_vector_env",
    "read_spec",
]
