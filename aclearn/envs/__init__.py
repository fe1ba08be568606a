"""Environments in groups: Atari on the emulator's own vector environment, all others in a loop."""

from __future__ import annotations

from aclearn.envs.episodes import EpisodeTracker, FinishedEpisode
from aclearn.envs.factory import make_vector_env, read_spec
from aclearn.envs.types import EnvSpec, EnvStep, VectorEnv

__all__ = [
    "EnvSpec",
    "EnvStep",
    "EpisodeTracker",
    "FinishedEpisode",
    "VectorEnv",
    "make_vector_env",
    "read_spec",
]
