"""The correction of a batch that a loss keeps over all its updates from that batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from correctors import Correction


@dataclass(frozen=True, eq=False)
class FrozenCorrection:
    """What the weights before the batch's first update gave.

    Attributes:
        correction: targets, advantages and weights, π being the policy of those weights.
        log_probs: `[T, B]` float32, log π(a) of that policy, no gradient.
    """

    correction: Correction
    log_probs: Tensor

    def columns(self, columns: slice) -> FrozenCorrection:
        """That of some of the environments."""
        return FrozenCorrection(self.correction.columns(columns), self.log_probs[:, columns])
