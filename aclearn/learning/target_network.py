"""The target network: weights that follow the target policy's slowly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class TargetNetwork:
    """A copy of weights that changes every so many updates (Luo et al. 2020, section 3.1).

    Args:
        weights: the first ones, copied.
        every: updates from one change to the next.
        rate: share of the way to the newest weights that a change goes; 1 copies them.

    Attributes:
        weights: in the order of those given.
        updates: since the last change, int64 on the device of the weights.
    """

    def __init__(self, weights: Sequence[Tensor], *, every: int, rate: float) -> None:
        self._every, self._rate = every, rate
        self.weights = [weight.detach().clone() for weight in weights]
        self.updates = torch.zeros((), dtype=torch.int64, device=self.weights[0].device)

    @torch.no_grad()
    def follow(self, weights: Sequence[Tensor], applied: Tensor | bool = True) -> None:
        """Note an update, after which the weights are these; without a wait for the device.

        Args:
            weights: in the order of `weights`.
            applied: whether there was an update.
        """
        self.updates += applied
        due = (self.updates >= self._every) & applied
        share = due.float() * self._rate
        for mine, its in zip(self.weights, weights, strict=True):
            mine.lerp_(its, share)
        self.updates.masked_fill_(due, 0)

    @torch.no_grad()
    def set(self, weights: Sequence[Tensor], *, updates: int = 0) -> None:
        """Copy these weights, of so many updates after a change."""
        torch._foreach_copy_(self.weights, list(weights))
        self.updates.fill_(updates)
