"""A scripted group of environments that stacks its frames with deques."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aclearn.types import OBSERVATION, EnvSpec, EnvStep
from tests.support.env_specs import plain_spec

#: Events of one environment in one step.
EVENTS = ("go on", "terminated", "truncated", "life lost", "fault")


@dataclass
class ScriptedEnvs:
    """B environments with random frames and scripted ends of episodes.

    An ended episode is followed by a reset step, whatever the script has there; only "fault" has an
    effect in a reset step. Each environment keeps its own deque of the last S frames.
    """

    spec: EnvSpec
    num_envs: int
    seed: int
    ended: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self.ended = [False] * self.num_envs
        self._stacks: list[deque[NDArray[Any]]] = [deque() for _ in range(self.num_envs)]

    def reset(self) -> dict[str, NDArray[Any]]:
        for b in range(self.num_envs):
            self._begin_episode(b)
        return self.observations()

    def step(self, events: list[str]) -> EnvStep:
        names = ("terminated", "truncated", "life lost", "reset", "fault")
        flags = {name: np.zeros(self.num_envs, np.bool_) for name in names}
        rewards = self._rng.normal(0, 2, self.num_envs).astype(np.float32)
        for b, event in enumerate(events):
            if self.ended[b] or event == "fault":
                flags["reset"][b] = True
                flags["fault"][b] = event == "fault"
                rewards[b] = 0
                self._begin_episode(b)
                self.ended[b] = False
                continue
            self._stacks[b].append(self._frame())
            self._stacks[b].popleft()
            if event != "go on":
                flags[event][b] = True
            self.ended[b] = event in ("terminated", "truncated")
        return EnvStep(
            observations=self.observations(),
            rewards=rewards,
            terminated=flags["terminated"],
            truncated=flags["truncated"],
            life_lost=flags["life lost"],
            reset=flags["reset"],
            faulted=flags["fault"],
        )

    def observations(self) -> dict[str, NDArray[Any]]:
        stacks = [np.concatenate(list(stack)) for stack in self._stacks]
        return {OBSERVATION: np.stack(stacks)}

    def _begin_episode(self, b: int) -> None:
        # a new stack: an emulator may have skipped no-ops after a reset
        self._stacks[b] = deque(
            self._frame() for _ in range(self.spec.observation["observation"].frame_stack)
        )

    def _frame(self) -> NDArray[Any]:
        leaf = self.spec.observation["observation"]
        shape = (leaf.shape[0] // leaf.frame_stack, *leaf.shape[1:])
        if leaf.dtype == "uint8":
            return self._rng.integers(0, 256, shape, np.uint8)
        return self._rng.normal(size=shape).astype(np.float32)


@pytest.fixture(scope="session")
def scripted_envs():
    """Makes `ScriptedEnvs` of stacked images (S, C) or, with S = 0, of flat observations."""

    def make(num_envs: int, *, stack: int = 2, channels: int = 1, seed: int = 0) -> ScriptedEnvs:
        if stack == 0:
            spec = plain_spec((3,), "float32", 4, 1)
        else:
            spec = plain_spec((stack * channels, 2, 3), "uint8", 4, stack)
        return ScriptedEnvs(spec, num_envs, seed)

    return make
