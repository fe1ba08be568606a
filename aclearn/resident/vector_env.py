"""A resident environment as a group of environments for actors: `env.id: resident:CartPole`.

Each agent of a world has a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from aclearn.envs.vector_env import VectorEnv
from aclearn.errors import EnvironmentFailure
from aclearn.resident import ResidentWorlds, make
from aclearn.types import OBSERVATION, EnvStep
from aclearn.types.observation_spec import Observations

#: Nothing says how long a step of a resident environment lasts.
_PICTURES_A_SECOND = 10.0


class ResidentVectorEnv(VectorEnv):
    """Resident environments on the CPU; thousands in one actor.

    Args:
        name: of ours, or `module:NAME`.
        squash: as `env.squash_actions`.
        config: of the environment's parameters, and `time_limit`.

    Raises:
        AclearnError: as of `make`.
    """

    def __init__(
        self,
        name: str,
        *,
        num_envs: int,
        seed: int,
        threads: int,
        squash: bool,
        config: Mapping[str, Any],
    ) -> None:
        self._envs = make(
            name, envs=num_envs, device="cpu", seed=seed, threads=threads, squash=squash, **config
        )
        if len(self._envs.kinds) > 1:
            raise EnvironmentFailure(
                f"environment resident:{name}: its agents are of several kinds, which actors "
                "cannot step; set resident.envs"
            )
        self.spec = self._envs.spec
        self.num_envs = num_envs * self.spec.agents
        self.masks: NDArray[np.bool_] | None = None
        self.faults: dict[str, int] = {}
        self.between_attempts: Callable[[], None] = lambda: None
        self._dtype = torch.float32 if self.spec.action.numbers else torch.int64

    @override
    def reset(self, seed: int | None = None) -> Observations:
        self._envs.reset(seed)
        return self._seen()

    @override
    def send(self, actions: NDArray[Any]) -> None:
        expected = (self.num_envs, *self.spec.action.shape)
        if actions.shape != expected:
            raise ValueError(f"actions: expected shape {expected}, got {actions.shape}")
        if not self.spec.action.contains(actions).all():
            raise ValueError(f"actions: expected {self.spec.action}, got {actions.tolist()}")
        sampled = torch.from_numpy(actions).to(self._dtype)
        if isinstance(self._envs, ResidentWorlds):
            self._envs.step(sampled.view(-1, self.spec.agents, *sampled.shape[1:]))
        else:
            self._envs.step(sampled)

    @override
    def recv(self) -> EnvStep:
        self._envs.take_sums()
        b = self._envs.buffers
        reached = (b.rewards, b.terminated, b.truncated, b.valid)
        rewards, terminated, truncated, valid = (t[0].numpy().copy() for t in reached)
        none = np.zeros(self.num_envs, np.bool_)
        return EnvStep(
            observations=self._seen(),
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            life_lost=none,
            reset=~valid,
            faulted=none.copy(),
        )

    def _seen(self) -> Observations:
        b = self._envs.buffers
        self.masks = None if b.masks is None else b.masks[-1].numpy().copy()
        return {OBSERVATION: b.observations[-1].numpy().copy()}

    @property
    @override
    def picture_rate(self) -> float:
        return _PICTURES_A_SECOND

    @override
    def picture(self) -> NDArray[np.uint8]:
        return self._envs.picture()

    @override
    def close(self) -> None:
        self._envs.close()
