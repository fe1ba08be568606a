"""The target network: weights that follow the target policy's slowly."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from aclearn.learning.decisions import surely


class TargetNetwork:
    """Copies of weights that change every so many updates (Luo et al. 2020, section 3.1).

    Attributes:
        updates: since the last change, int64 on the device of the weights.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        *,
        every: int,
        rate: float,
        names: tuple[str, ...] = ("",),
    ) -> None:
        self._every, self._rate = every, rate
        self._newest = dict(weights)
        self.copies = {
            name: weight.detach().clone()
            for name, weight in weights.items()
            if name.startswith(names)
        }
        device = next(iter(weights.values())).device
        self.updates = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def weights(self) -> list[Tensor]:
        """The copies, and the newest of the weights that have none, in the order given."""
        return [self.copies.get(name, weight) for name, weight in self._newest.items()]

    @torch.no_grad()
    def follow(self, applied: Tensor) -> None:
        """Note an update of the weights, if it was `applied`, `[]` bool."""
        self.updates += applied
        due = (self.updates >= self._every) & applied
        if surely(~due):
            return
        share = due.float() * self._rate
        for name, copy in self.copies.items():
            copy.lerp_(self._newest[name], share)
        self.updates.masked_fill_(due, 0)
