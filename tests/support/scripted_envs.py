"""Environments with random observations, and random ends, resets and faults."""

from __future__ import annotations

import numpy as np

from aclearn.types import EnvSpec, EnvStep
from aclearn.types.observation_spec import Observations


class ScriptedEnvs:
    """B environments in which actions change nothing; stacks of frames repeat the first one.

    Args:
        ends: probability of an end in a step, terminated or truncated alike.
        faults: probability of a fault.
    """

    def __init__(
        self, spec: EnvSpec, num_envs: int, *, seed: int, faults: float = 0.0, ends: float = 0.15
    ) -> None:
        self.spec, self.num_envs = spec, num_envs
        self._ends, self._faults = ends, faults
        self._rng = np.random.default_rng(seed)
        self._ended = np.zeros(num_envs, np.bool_)
        self._shown: Observations = {}
        self.masks: np.ndarray | None = None

    def reset(self) -> Observations:
        return self._next(np.ones(self.num_envs, np.bool_))

    def step(self) -> EnvStep:
        none = np.zeros(self.num_envs, np.bool_)
        faulted = self._rng.random(self.num_envs) < self._faults
        reset = self._ended | faulted
        kinds = self._rng.random(self.num_envs)
        ended = ~reset & (kinds < self._ends)
        self._ended = ended
        terminated = ended & (kinds < self._ends / 2)
        rewards = np.where(reset, 0, self._rng.normal(size=self.num_envs)).astype(np.float32)
        return EnvStep(
            self._next(reset), rewards, terminated, ended & ~terminated, none, reset, faulted
        )

    def _next(self, begins: np.ndarray) -> Observations:
        shown = {}
        for name, leaf in self.spec.observation.items():
            channels = leaf.shape[0] // leaf.frame_stack if leaf.frame_stack > 1 else leaf.shape[0]
            size = (self.num_envs, channels, *leaf.shape[1:])
            if leaf.dtype == "uint8":
                frame = self._rng.integers(0, 256, size, np.uint8)
            else:
                frame = self._rng.normal(size=size).astype(np.float32)
            stack = np.concatenate([frame] * leaf.frame_stack, axis=1)
            if self._shown and leaf.frame_stack > 1:
                goes_on = np.concatenate([self._shown[name][:, channels:], frame], axis=1)
                stack[~begins] = goes_on[~begins]
            shown[name] = stack
        self._shown = shown
        if self.spec.masked:
            width = self.spec.action.mask_width
            self.masks = self._rng.random((self.num_envs, width)) < 0.6
            self.masks[:, 0] = True
        return {name: array.copy() for name, array in shown.items()}
