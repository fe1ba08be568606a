"""`correctors: auto`: each part of the ratio is corrected as far as its measured size asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from correctors._checks import check_fraction
from correctors.adaptive import divergence, effective_share
from correctors.chain import Correction, CorrectionInput
from correctors.importance import MAX_LOG_RHO, importance_weights
from correctors.parts import Part, log_ratios, part_of
from correctors.vtrace import VTrace

#: KL divergence in nats from which a part is corrected in full. prime-rl takes a sampler whose
#: mean mismatch is below it as equal to the trainer.
FULL_AT_KL = 0.015
#: Range of a gap, 1/2 to 2 (IcePop; a bound of 2 is usual for truncated weights).
LOG_GAP_BOUND = math.log(2.0)
#: Least effective sample share, chosen on CartPole, which needs no correction at a lag of 64
#: versions, and Acrobot, which needs one (docs/results/atlas.md). At ½, below which particle
#: filters resample, CartPole learned half as much as without correction.
LEAST_SHARE = 0.9
_PARTS: tuple[Part, Part] = ("gap", "drift")
#: Halvings of the exponent, which leave an error of 1e-4.
_HALVINGS = 13


class Decision(NamedTuple):
    """Strengths from 0, no correction, to 1, in full; `[]` float64.

    Attributes:
        gap: of the implementation gap.
        drift: of the drift.
    """

    gap: Tensor
    drift: Tensor


@dataclass(frozen=True)
class Auto:
    """V-trace and importance weights of a ratio whose two parts count as far as they are measured.

    For each update two strengths from 0 to 1 are computed from all its steps (`decide`). With the
    gap g = π_v/μ and the drift d = π/π_v the ratio that everything uses is

        ρ' = clip(g, ½, 2)^gap_strength · d^drift_strength

    * On-policy data give strengths of 0: λ-returns, weights of 1.
    * Drift alone (lag, epochs) gives V-trace and weights min(1, ρ).
    * A gap alone is truncated in the targets, and steps outside [½, 2] are masked in the policy
      gradient: their weights are multiplied by 1 − gap_strength.
    * Ratios of which few steps would decide are tempered, ρ'^s with s below 1, by the effective
      sample share (as Zhou, Johansen & Aston 2016 choose a temperature).

    It needs no setting. `lambda_` is V-trace's. The bounds are taken from works that this module
    names; joining them so is ours. It holds no state: one batch gives one decision.
    """

    lambda_: float = 0.95

    needs: ClassVar[frozenset[str]] = VTrace.needs | {"log_gaps", "valid"}

    def __post_init__(self) -> None:
        check_fraction("lambda_", self.lambda_)

    def measure(self, log_rhos: Tensor, log_gaps: Tensor) -> Tensor:
        """The strengths of gap and drift, `[2]`."""
        parts = (part_of(log_rhos, log_gaps, part) for part in _PARTS)
        return torch.stack(decide(*parts)).float()

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with other targets, advantages and weights.

        Its metrics are V-trace's, `auto_gap_strength`, `auto_drift_strength`, and
        `auto_masked_share`, the part of a step that the mask takes.
        """
        with torch.no_grad():
            gap, drift = batch.required("measured").unbind()
            gaps, drifts = (log_ratios(batch, part) for part in _PARTS)
            ratios = gap * _bounded(gaps) + drift * _finite(drifts)
            masked = gap * (gaps.abs() > LOG_GAP_BOUND)
            weights = importance_weights(ratios) * (1.0 - masked)
            made = VTrace(lambda_=self.lambda_).correct(replace(batch, log_rhos=ratios), correction)
        metrics = {
            **made.metrics,
            "auto_gap_strength": gap.expand_as(weights),
            "auto_drift_strength": drift.expand_as(weights),
            "auto_masked_share": masked,
        }
        return replace(made, weights=correction.weights * weights, metrics=metrics)


def decide(log_gaps: Tensor, log_drifts: Tensor) -> Decision:
    """The strengths for an update, from the logarithms `[N]` of all its steps; NaN is left out.

    A strength grows in proportion to the KL divergence of its part, up to 1 at `FULL_AT_KL`. Both
    are then lowered by one factor until the effective sample share of ρ' is `LEAST_SHARE`.
    """
    gap, drift = ((divergence(each) / FULL_AT_KL).clamp(max=1.0) for each in (log_gaps, log_drifts))
    logs = gap.float() * _bounded(log_gaps) + drift.float() * _finite(log_drifts)

    def enough(exponent: Tensor) -> Tensor:
        return effective_share(exponent.float() * logs) >= LEAST_SHARE

    whole = torch.ones_like(gap)
    low, high = torch.zeros_like(gap), whole
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        fits = enough(middle)
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
    exponent = torch.where(enough(whole), whole, low)
    return Decision(exponent * gap, exponent * drift)


def _bounded(log_gaps: Tensor) -> Tensor:
    return log_gaps.clamp(-LOG_GAP_BOUND, LOG_GAP_BOUND)


def _finite(log_drifts: Tensor) -> Tensor:
    """So that a strength of 0 gives 0."""
    return log_drifts.clamp(-MAX_LOG_RHO, MAX_LOG_RHO)
