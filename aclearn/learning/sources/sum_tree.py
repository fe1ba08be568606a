"""A sum tree: draws numbers in proportion to their weights."""

from __future__ import annotations

import torch
from torch import Tensor

#: Children of a node: three or four levels, so few operations, for a million leaves.
_CHILDREN = 64


class SumTree:
    """Weights of `leaves` numbers, at first 0. Nothing waits for the device.

    A sum is computed from its children each time one of them changes, so no error accumulates.

    Attributes:
        weights: `[leaves]` float64; written by `set` alone.
    """

    def __init__(self, leaves: int, device: torch.device) -> None:
        sizes = [leaves]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // _CHILDREN))
        # levels from the root's children to the leaves, each padded to whole families
        self._levels = [
            torch.zeros(-(-size // _CHILDREN), _CHILDREN, dtype=torch.float64, device=device)
            for size in reversed(sizes[:-1] or sizes)
        ]
        self.weights = self._levels[-1].view(-1)[:leaves]

    @property
    def total(self) -> Tensor:
        """Sum of all weights, `[]`."""
        return self._levels[0].sum()

    def set(self, leaves: Tensor, weights: Tensor) -> None:
        """Set the weights of `leaves` `[N]`; of a repeated leaf, all must be the same."""
        self.weights[leaves] = weights.double()
        below = self._levels[-1]
        for level in reversed(self._levels[:-1]):
            leaves, sums = leaves // _CHILDREN, level.view(-1)
            if len(leaves) < len(below):
                sums[leaves] = below[leaves].sum(1)
            else:
                sums[: len(below)] = below.sum(1)
            below = level

    def draw(self, uniform: Tensor) -> Tensor:
        """Leaves `[N]` in proportion to their weights, one from each Nth of the total, ascending.

        Args:
            uniform: `[N]` float64 in [0, 1). The total must not be 0.
        """
        count = len(uniform)
        strata = torch.arange(count, dtype=torch.float64, device=uniform.device)
        mass = (strata + uniform) / count * self.total
        node = torch.zeros(count, dtype=torch.int64, device=uniform.device)
        for level in self._levels:
            children = level[node]
            sums = children.cumsum(1)
            # below the last sum, so that rounding never chooses a leaf of weight 0
            mass = torch.minimum(mass, sums[:, -1].nextafter(sums.new_zeros(())))
            child = (sums <= mass.unsqueeze(1)).sum(1)
            before = sums.gather(1, child.unsqueeze(1)) - children.gather(1, child.unsqueeze(1))
            mass = (mass - before.squeeze(1)).clamp(min=0.0)
            node = node * _CHILDREN + child
        return node
