"""The recording of a rollout: tensors of torch that kernels write into, without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from aclearn.errors import ConfigError
from aclearn.types import ActionSpec
from aclearn.types.bounds import LARGEST_NUMBER

#: Bytes of one step of an array: Warp keeps strides in 32 bits.
_MOST_STEP_BYTES = 2**31 - 1


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
        masks: `[T+1, N, W]` bool, the choices that observations allow; None: all.
    """

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    masks: Tensor | None = None

    @classmethod
    def empty(
        cls,
        width: int,
        action: ActionSpec,
        *,
        steps: int,
        rows: int,
        device: torch.device,
        masked: bool = False,
    ) -> Buffers:
        """Buffers of zeros.

        Args:
            width: D.
            rows: N.

        Raises:
            ConfigError: a step of them all is too large for Warp's arrays.
        """
        dtype = torch.float32 if action.numbers else torch.int64
        each = max(4 * width, dtype.itemsize * prod(action.shape), action.mask_width)
        if rows * each > _MOST_STEP_BYTES:
            raise ConfigError(
                f"resident.envs: a step of {rows} agents has up to {each} bytes for each, "
                f"{rows * each / 2**30:.1f} GiB; Warp's arrays take 2 GiB a step, "
                f"{_MOST_STEP_BYTES // each} agents in all"
            )

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(
            zeros(steps + 1, rows, width),
            zeros(steps, rows, *action.shape, dtype=dtype),
            zeros(steps, rows),
            zeros(steps, rows),
            zeros(steps, rows, dtype=torch.bool),
            zeros(steps, rows, dtype=torch.bool),
            zeros(steps, rows, dtype=torch.bool),
            zeros(steps + 1, rows, action.mask_width, dtype=torch.bool) if masked else None,
        )

    def carry_over(self) -> None:
        """Copy the last row of the observations to the first, where the next rollout begins."""
        self.observations[0].copy_(self.observations[-1])
        if self.masks is not None:
            self.masks[0].copy_(self.masks[-1])

    def wrong_number(self, row: int) -> str:
        """The first recorded number of a row that is out of range, for a message."""
        for name, rows in {"reward": self.rewards, "observation": self.observations}.items():
            wrong = rows[:, row][~(rows[:, row].abs() <= LARGEST_NUMBER)]
            if len(wrong):
                return f": {name} {float(wrong[0]):g}"
        return ""  # not recorded, or clipped

    @staticmethod
    def bytes_per_step(width: int, action: ActionSpec) -> int:
        """Bytes of one step of one row."""
        numbers = max(1, *action.shape) if action.shape else 1
        return 4 * width + (4 if action.numbers else 8) * numbers + 4 + 4 + 3

    @classmethod
    def bytes_of(cls, width: int, action: ActionSpec, *, steps: int) -> dict[str, int]:
        """Bytes of one row's record."""
        # one more row: the last observation
        return {f"{steps} recorded steps": 4 * width + steps * cls.bytes_per_step(width, action)}
