"""Decisions of an update as bool tensors `[]`, so that nothing waits for a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def readable(device: torch.device) -> bool:
    """Whether the host may read tensors without a wait, as on the CPU."""
    return device.type == "cpu"


def is_finite(number: Tensor) -> Tensor:
    """Bool of floats of any shape: `torch.isfinite` in half of its operations."""
    return number - number == 0.0


def in_a_row(numbers: Sequence[Tensor]) -> Tensor:
    """`[n]` float64 of numbers `[]` of any types."""
    if readable(numbers[0].device):
        return torch.tensor([each.item() for each in numbers], dtype=torch.float64)
    return torch.stack(list(numbers)).double()


def surely(decision: Tensor) -> bool:
    """Whether a decision is known to be True; on a GPU none is, so its effects are masked there."""
    return readable(decision.device) and bool(decision)
