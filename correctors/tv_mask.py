"""A mask of steps whose probability has moved too far, by total variation (DPPO)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from correctors._checks import check_positive
from correctors.chain import Correction, CorrectionInput


@dataclass(frozen=True)
class TVMask:
    """Weights are 0 where |π(a) − μ(a)| > `bound` and the update would widen the difference.

    DPPO's binary approximation of total variation (Qi et al. 2026, arXiv 2602.04879, DPPO-Binary-TV
    as in the authors' code): a step with A > 0 is masked where π − μ > δ, another one where
    π − μ < −δ; δ = 0.2 is prime-rl's. Unlike a ratio, the difference is bounded for rare actions.
    Advantages are those of the chain so far: list it behind the corrector of targets. Targets keep
    all steps, since DPPO has no critic. Actions must have probabilities.
    """

    bound: float = 0.2

    needs: ClassVar[frozenset[str]] = frozenset({"log_pi", "behaviour_probs"})

    def __post_init__(self) -> None:
        check_positive("bound", self.bound)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with other weights; metric `tv_masked_share`."""
        with torch.no_grad():
            change = batch.required("log_pi").exp() - batch.required("behaviour_probs")
            rises = correction.advantages > 0.0
            masked = torch.where(rises, change > self.bound, change < -self.bound)
            weights = correction.weights.masked_fill(masked, 0.0)
        metrics = {**correction.metrics, "tv_masked_share": masked.float()}
        return replace(correction, weights=weights, metrics=metrics)
