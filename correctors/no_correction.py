"""Returns as if the data were on-policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from correctors._checks import check_fraction
from correctors.chain import Correction, CorrectionInput
from correctors.vtrace import lambda_returns


@dataclass(frozen=True)
class NoCorrection:
    """The λ-returns of μ: targets and advantages of V-trace with every ratio 1, as in A3C.

    `lambda_` 1 gives the n-step return over the whole unroll, 0 the one-step return.
    """

    lambda_: float = 1.0

    needs: ClassVar[frozenset[str]] = frozenset(
        {"values", "next_values", "rewards", "discounts", "done"}
    )

    def __post_init__(self) -> None:
        check_fraction("lambda_", self.lambda_)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with targets and advantages replaced."""
        with torch.no_grad():
            ones = torch.ones_like(batch.rewards)
            made = lambda_returns(batch, weights=ones, trace=ones, lambda_=self.lambda_)
        return replace(correction, targets=made.targets, advantages=made.advantages)
