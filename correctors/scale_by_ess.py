"""VCPO's step size: the effective sample share scales the step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from correctors._checks import check_positive
from correctors.chain import Correction, CorrectionInput


@dataclass(frozen=True)
class ScaleByESS:
    """The step is multiplied by (ESS / n)^`exponent`, with ESS = (Σρ)² / Σρ² of an update's steps.

    VCPO (Huang et al. 2026, arXiv 2602.17616): η_eff ∝ √(ESS/B), by the square root for optimisers
    like Adam; its code has min(1, share / base) with a base of 1, and ratios that are not clipped.
    It scales the learning rate, not the gradient, which Adam would divide out again: of policy and
    critic alike. The ratios are those of single steps, where VCPO's are of sequences.
    """

    exponent: float = 0.5

    needs: ClassVar[frozenset[str]] = frozenset({"log_rhos"})

    def __post_init__(self) -> None:
        check_positive("exponent", self.exponent)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with another `step_exponent`; the trainer reports `step_scale`."""
        return replace(correction, step_exponent=correction.step_exponent + self.exponent)
