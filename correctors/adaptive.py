"""Importance weights whose strength follows the measured harm of the mismatch (after AIS)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from correctors._checks import check_bar
from correctors.chain import Correction, CorrectionInput
from correctors.importance import MAX_LOG_RHO, importance_weights
from correctors.parts import Part, check_part, log_ratios, needs_of, part_of


@dataclass(frozen=True)
class Adaptive:
    """Weights 1 + λ · (min(`rho_bar`, ρ) − 1), between no correction (λ = 0) and full (λ = 1).

    AIS (Zhou et al. 2026, arXiv 2605.13907) mixes the uncorrected and the importance-weighted
    gradient by one coefficient for each batch, made of three figures of it: reliability of the
    weights, severity of the divergence, amplification of the variance. The mixture and the figures
    are the paper's; how it joins them we could not read, so this λ is ours:

        λ = √(1 − exp(−KL)) · ESS/n

    The first factor bounds the total variation of μ and π (Bretagnolle & Huber 1979), by the
    estimate KL = mean of ρ − 1 − log ρ. The second is 1 / (1 + CV²) of the ratios, reliability and
    amplification in one (Kish's effective sample size). Equal policies give λ = 0, and so do
    weights of which one step would decide. Targets are left to other correctors.
    """

    rho_bar: float | None = 1.0
    part: Part = "ratio"

    def __post_init__(self) -> None:
        check_bar("rho_bar", self.rho_bar)
        check_part(self.part)

    @property
    def needs(self) -> frozenset[str]:
        """The fields that it reads."""
        return needs_of(self.part) | {"log_rhos", "valid"}

    def measure(self, log_rhos: Tensor, log_gaps: Tensor) -> Tensor:
        """λ, `[]`."""
        logs = part_of(log_rhos, log_gaps, self.part)
        return ((-torch.expm1(-divergence(logs))).sqrt() * effective_share(logs)).float()

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with other weights; metric `adaptive_strength`, λ."""
        with torch.no_grad():
            strength = batch.required("measured")
            full = importance_weights(log_ratios(batch, self.part), rho_bar=self.rho_bar)
            weights = correction.weights * (1.0 + strength * (full - 1.0))
        metrics = {**correction.metrics, "adaptive_strength": strength.expand_as(weights)}
        return replace(correction, weights=weights, metrics=metrics)


def divergence(log_ratios: Tensor) -> Tensor:
    """KL(μ‖π), `[]` float64, estimated as the mean of ρ − 1 − log ρ (k3 of Schulman 2020).

    Args:
        log_ratios: [N], of actions of μ; NaN is left out. Without any it is 0.
    """
    logs = log_ratios.clamp(-MAX_LOG_RHO, MAX_LOG_RHO)
    return (logs.expm1() - logs).nanmean(dtype=torch.float64).nan_to_num(0.0)


def effective_share(log_ratios: Tensor) -> Tensor:
    """Kish's effective sample size as a share of the steps, (Σρ)² / (n Σρ²), `[]` float64.

    Args:
        log_ratios: [N]; NaN is left out. Without any it is 1.
    """
    ratios = log_ratios.clamp(-MAX_LOG_RHO, MAX_LOG_RHO).exp()
    mean, square = (each.nanmean(dtype=torch.float64) for each in (ratios, ratios.square()))
    return (mean.square() / square).nan_to_num(1.0)
