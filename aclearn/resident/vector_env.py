"""A resident environment as a group of environments for actors: `env.id: resident:CartPole`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aclearn.envs.vector_env import VectorEnv
from aclearn.errors import EnvironmentFailure
from aclearn.resident import make
from aclearn.types import OBSERVATION, EnvStep
from aclearn.types.observation_spec import Observations


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
        self.spec, self.num_envs = self._envs.spec, num_envs
        self.masks: NDArray[np.bool_] | None = None
        self.faults: dict[str, int] = {}
        self.between_attempts: Callable[[], None] = lambda: None
        self._dtype = torch.float32 if self.spec.action.numbers else torch.int64
        self._reached: tuple[Tensor, ...] = ()

    @override
    def reset(self, seed: int | None = None) -> Observations:
        return {OBSERVATION: self._envs.reset(seed).numpy().copy()}

    @override
    def send(self, actions: NDArray[Any]) -> None:
        expected = (self.num_envs, *self.spec.action.shape)
        if actions.shape != expected:
            raise ValueError(f"actions: expected shape {expected}, got {actions.shape}")
        if not self.spec.action.contains(actions).all():
            raise ValueError(f"actions: expected {self.spec.action}, got {actions.tolist()}")
        self._reached = self._envs.step(torch.from_numpy(actions).to(self._dtype))

    @override
    def recv(self) -> EnvStep:
        self._envs.take_sums()
        observations, rewards, terminated, truncated = (t.numpy().copy() for t in self._reached)
        reset = ~self._envs.buffers.valid[0].numpy()
        none = np.zeros(self.num_envs, np.bool_)
        return EnvStep(
            observations={OBSERVATION: observations},
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            life_lost=none,
            reset=reset,
            faulted=none.copy(),
        )

    @property
    @override
    def picture_rate(self) -> float:
        return 0.0

    @override
    def picture(self) -> Any:
        raise EnvironmentFailure("resident environments have no pictures")

    @override
    def close(self) -> None:
        self._envs.close()
