"""n-step returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from correctors._recursion import bootstrapped
from correctors.chain import Correction, CorrectionInput


@dataclass(frozen=True)
class NStep:
    """Targets r_t + γ r_t+1 + … + γ^n V(x_t+n), as if the data were on-policy.

    A return ends earlier where the episode or the trace does, and bootstraps from the observation
    that was reached there, unless the episode terminated. Advantages are targets − V(x_t).
    """

    steps: int = 5

    needs: ClassVar[frozenset[str]] = frozenset(
        {"values", "next_values", "rewards", "discounts", "done"}
    )

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps: expected at least 1, got {self.steps}")

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with targets and advantages replaced."""
        with torch.no_grad():
            targets = self._returns(batch)
            return replace(correction, targets=targets, advantages=targets - batch.values)

    def _returns(self, batch: CorrectionInput) -> Tensor:
        """G^k_t = r_t + γ_t · (V(x_t+1) at an end, else G^(k−1)_t+1), for k up to n."""
        returns = bootstrapped(batch.rewards, batch.discounts, batch.next_values)
        inside = ~batch.done[:-1]
        for _ in range(min(self.steps, len(returns)) - 1):
            reached = batch.next_values.clone()
            # `where`: behind an end may be anything, even NaN
            reached[:-1] = torch.where(inside, returns[1:], reached[:-1])
            returns = bootstrapped(batch.rewards, batch.discounts, reached)
        return returns
