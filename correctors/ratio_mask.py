"""A mask of steps whose ratio is out of range (IcePop)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from correctors._checks import check_range
from correctors.chain import Correction, CorrectionInput
from correctors.parts import Part, check_part, log_ratios, needs_of


@dataclass(frozen=True)
class RatioMask:
    """Weights of the policy gradient are 0 where the ratio k is outside [`low`, `high`].

    INTELLECT-3 technical report (arXiv 2512.16144), eq. 1: M(k) = k in [α, β], else 0. This is the
    mask alone: behind `ImportanceSampling(None)` it is the equation's M, and with `part` "gap" it
    is IcePop's own mask, of the training engine's probability over the inference engine's at equal
    weights (Ling Team, arXiv 2510.18855). Targets of values keep all steps: both works have no
    critic, and a trace over a masked step is bounded by V-trace.
    """

    low: float = 0.5
    high: float | None = 2.0
    part: Part = "ratio"

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        check_part(self.part)

    @property
    def needs(self) -> frozenset[str]:
        """The fields that it reads."""
        return needs_of(self.part)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with other weights; metric `<part>_masked_share`."""
        with torch.no_grad():
            logs = log_ratios(batch, self.part)
            low = math.log(self.low) if self.low > 0.0 else -math.inf
            high = math.inf if self.high is None else math.log(self.high)
            masked = ~((logs >= low) & (logs <= high))
            weights = correction.weights.masked_fill(masked, 0.0)
        metrics = {**correction.metrics, f"{self.part}_masked_share": masked.float()}
        return replace(correction, weights=weights, metrics=metrics)
