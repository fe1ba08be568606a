"""The figures of one update, and the sums that they are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class GradientSums:
    """Sums over the valid steps of a batch, reported with its gradient.

    Attributes:
        metrics: of the loss and of the correctors, by name.
        ratios: importance ratios π/μ, not clipped.
        ratio_squares: their squares.
        advantage_squares: squared weighted advantages, before they are normalised.
        steps: number of valid steps.
    """

    metrics: Mapping[str, float]
    ratios: float
    ratio_squares: float
    advantage_squares: float
    steps: int

    def plus(self, other: GradientSums) -> GradientSums:
        """The sums over both."""
        return GradientSums(
            {name: value + other.metrics[name] for name, value in self.metrics.items()},
            self.ratios + other.ratios,
            self.ratio_squares + other.ratio_squares,
            self.advantage_squares + other.advantage_squares,
            self.steps + other.steps,
        )


@dataclass(frozen=True)
class UpdateReport:
    """The figures of one update.

    Attributes:
        applied: False when the gradient was not finite and the weights stayed as they were.
        metrics: by name: those of the loss and of the correctors, means over the valid steps;
            `behaviour_kl` or `behaviour_kl_estimate`, mean KL(μ ‖ π); `rho_mean`, mean of ρ, not
            clipped; `effective_sample_share`, (Σρ)² / (n Σρ²), 0 to 1; `gradient_norm`, Euclidean,
            of the mean loss's gradient before clipping; and `learning_rate`.
    """

    applied: bool
    metrics: Mapping[str, float]

    def gauges(self) -> dict[str, float]:
        """The finite metrics."""
        return {name: value for name, value in self.metrics.items() if math.isfinite(value)}

    @classmethod
    def of(
        cls, sums: GradientSums, *, applied: bool, gradient_norm: float, rate: float
    ) -> UpdateReport:
        """The report of one update, from sums over its steps."""
        steps = max(1, sums.steps)
        metrics = {name: value / steps for name, value in sums.metrics.items()}
        own = {
            "gradient_norm": gradient_norm,
            "rho_mean": sums.ratios / steps,
            # Kish's (Σρ)² / Σρ², as a share of the steps; the sums add up over chunks
            "effective_sample_share": sums.ratios**2 / max(sums.ratio_squares, 1e-30) / steps,
            "learning_rate": rate,
        }
        return cls(applied, metrics | own)
