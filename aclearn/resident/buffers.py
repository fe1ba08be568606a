"""The recording of a rollout: tensors of torch that kernels write into, without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aclearn.resident.environment import ResidentEnv
from aclearn.resident.sampling import Sampler
from aclearn.resident.warp_setup import wp
from aclearn.types import ActionSpec


@dataclass(frozen=True, eq=False)
class Buffers:
    """T steps of N environments, time-major; the fields of a `Batch`.

    Attributes:
        observations: `[T+1, N, D]` float32; step t reached row t + 1.
        actions: as sampled, `[T, N]` int64, or `[T, N, n]` int64 or float32.
        log_probs: `[T, N]` float32, of the actions by the policy that chose them.
        rewards: `[T, N]` float32; 0 at a reset.
        terminated, truncated: `[T, N]` bool.
        valid: `[T, N]` bool; False at a reset, whose action was ignored.
    """

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor

    @classmethod
    def empty(
        cls, env: ResidentEnv, action: ActionSpec, *, steps: int, envs: int, device: torch.device
    ) -> Buffers:
        """Buffers of zeros."""
        dtype = torch.float32 if action.numbers else torch.int64

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(
            zeros(steps + 1, envs, env.observation_size),
            zeros(steps, envs, *action.shape, dtype=dtype),
            zeros(steps, envs),
            zeros(steps, envs),
            *(zeros(steps, envs, dtype=torch.bool) for _ in range(3)),
        )

    @staticmethod
    def bytes_per_step(env: ResidentEnv, action: ActionSpec) -> int:
        """Bytes of one step of one environment."""
        numbers = max(1, *action.shape) if action.shape else 1
        return 4 * env.observation_size + (4 if action.numbers else 8) * numbers + 4 + 4 + 3

    def arrays(self, env: ResidentEnv, sampler: Sampler) -> list[Any]:
        """This memory as Warp arrays, in the order of a rollout kernel's arguments."""
        dtypes = (env.observation_type, sampler.sampled, None, None, None, None, None)
        tensors = vars(self).values()
        return [wp.from_torch(t, dtype=dtype) for t, dtype in zip(tensors, dtypes, strict=True)]
