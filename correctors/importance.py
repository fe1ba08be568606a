"""Importance sampling: the weight of the policy gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from correctors._checks import check_bar, check_time_major
from correctors.chain import Correction, CorrectionInput
from correctors.parts import Part, check_part, log_ratios, needs_of

#: Largest log ratio that is exponentiated: e^20 = 4.9e8 is far beyond any useful weight, and a
#: product of four of them still fits into float32 (largest 3.4e38).
MAX_LOG_RHO = 20.0


def importance_ratios(log_rhos: Tensor) -> Tensor:
    """The unclipped ratios π(a|x)/μ(a|x), finite for every log ratio that is not NaN.

    −∞ (an action that π excludes) gives exactly 0; log ratios above `MAX_LOG_RHO` give
    e^`MAX_LOG_RHO`.
    """
    return log_rhos.clamp(max=MAX_LOG_RHO).exp()


def clip_ratios(rhos: Tensor, bar: float | None, alpha: float = 1.0) -> Tensor:
    """α · min(`bar`, ρ) + (1 − α) · ρ; the ratios themselves where `bar` is None."""
    if bar is None:
        return rhos
    clipped = rhos.clamp(max=bar)
    return clipped if alpha == 1.0 else torch.lerp(rhos, clipped, alpha)


def importance_weights(log_rhos: Tensor, *, rho_bar: float | None = 1.0) -> Tensor:
    """The weight min(ρ̄, π/μ) of each step's policy gradient (Espeholt et al. 2018, section 4.2).

    `log_rhos` is log π(a|x) − log μ(a|x) of the actions taken; a `rho_bar` of None does not clip.

    Returns:
        float32 [T, B]; no gradient flows through it.

    Raises:
        ValueError: a wrong shape, dtype or bar.
    """
    check_time_major(floats={"log_rhos": log_rhos})
    check_bar("rho_bar", rho_bar)
    with torch.no_grad():
        return clip_ratios(importance_ratios(log_rhos), rho_bar)


@dataclass(frozen=True)
class ImportanceSampling:
    """The corrector of the policy gradient: multiplies the weights by min(`rho_bar`, π/μ).

    `rho_bar` is the upper bound of a weight; None for no clipping. `part` names the ratio: the
    whole one, or one of its two parts.
    """

    rho_bar: float | None = 1.0
    part: Part = "ratio"

    def __post_init__(self) -> None:
        check_bar("rho_bar", self.rho_bar)
        check_part(self.part)

    @property
    def needs(self) -> frozenset[str]:
        """The fields that it reads."""
        return needs_of(self.part)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with other weights."""
        weights = importance_weights(log_ratios(batch, self.part), rho_bar=self.rho_bar)
        return replace(correction, weights=correction.weights * weights)
