"""A filter of unrolls by the geometric mean of their ratios."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from correctors._checks import check_range
from correctors.chain import Correction, CorrectionInput
from correctors.importance import MAX_LOG_RHO
from correctors.parts import Part, check_part, log_ratios, needs_of


@dataclass(frozen=True)
class UnrollMask:
    """Drops an environment's steps of a batch whose ratios' geometric mean is out of range.

    verl's "geometric" rejection (its page on rollout correction, 3.3.3 and 3.4): with ρ_geo
    = exp(mean over t of log ρ_t), a sequence with ρ_geo outside [`low`, `high`] is rejected;
    SkyRL's range is [0.99, 1.01]. An unroll, T steps of an environment, takes the place of the
    sequence; steps that do not count are left out of the mean. What is dropped has no part in the
    loss, like an unroll beyond `trainer.max_lag_versions`: policy, value and entropy. No other
    unroll's targets read it.
    """

    low: float = 0.99
    high: float | None = 1.01
    part: Part = "ratio"

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        check_part(self.part)

    @property
    def needs(self) -> frozenset[str]:
        """The fields that it reads."""
        return needs_of(self.part) | {"valid"}

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with fewer steps kept; metric `unroll_dropped_share`, of the steps."""
        with torch.no_grad():
            valid = batch.required("valid")
            logs = log_ratios(batch, self.part).clamp(-MAX_LOG_RHO, MAX_LOG_RHO)
            counts = valid.sum(0).clamp(min=1)
            means = logs.masked_fill(~valid, 0.0).double().sum(0) / counts
            low = math.log(self.low) if self.low > 0.0 else -math.inf
            high = math.inf if self.high is None else math.log(self.high)
            kept = ((means >= low) & (means <= high)).expand_as(valid).clone()
        metrics = {**correction.metrics, "unroll_dropped_share": (~kept).float()}
        if correction.kept is not None:
            kept &= correction.kept
        return replace(correction, kept=kept, metrics=metrics)
