"""The figures of one update, and the sums that they are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GradientSums:
    """Sums over the valid steps of a batch, reported with its gradient.

    Attributes:
        metrics: of the loss and of the correctors, by name.
        targets: value targets.
        target_squares: their squares.
        errors: targets minus the values before the update; with frozen targets, before the batch.
        error_squares: their squares.
        ratios: importance ratios π/μ, not clipped.
        ratio_squares: their squares.
        advantage_squares: squared weighted advantages, before they are normalised.
        steps: number of valid steps.
    """

    metrics: Mapping[str, float]
    targets: float
    target_squares: float
    errors: float
    error_squares: float
    ratios: float
    ratio_squares: float
    advantage_squares: float
    steps: int

    @classmethod
    def of(cls, names: Sequence[str], sums: Sequence[float], steps: int) -> GradientSums:
        """From the sums of the named metrics, followed by the others in their order."""
        count = len(names)
        metrics = dict(zip(names, sums[:count], strict=True))
        targets, target_squares, errors, error_squares, *others = sums[count:]
        ratios, ratio_squares, advantage_squares = others
        return cls(
            metrics,
            targets,
            target_squares,
            errors,
            error_squares,
            ratios,
            ratio_squares,
            advantage_squares,
            steps,
        )

    def plus(self, other: GradientSums) -> GradientSums:
        """The sums over both."""
        return GradientSums(
            {name: value + other.metrics[name] for name, value in self.metrics.items()},
            self.targets + other.targets,
            self.target_squares + other.target_squares,
            self.errors + other.errors,
            self.error_squares + other.error_squares,
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
            clipped; `explained_variance`, 1 − Var(target − value) / Var(target);
            `effective_sample_share`, (Σρ)² / (n Σρ²), 0 to 1; `gradient_norm`, Euclidean,
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
            "explained_variance": _explained_variance(sums),
            "rho_mean": sums.ratios / steps,
            # Kish's (Σρ)² / Σρ², as a share of the steps; the sums add up over chunks
            "effective_sample_share": sums.ratios**2 / max(sums.ratio_squares, 1e-30) / steps,
            "learning_rate": rate,
        }
        return cls(applied, metrics | own)


def _explained_variance(sums: GradientSums) -> float:
    """Share of the targets' variance that the values explain; NaN of targets that are all equal."""
    steps = max(1, sums.steps)
    variances = [
        squares / steps - (total / steps) ** 2
        for total, squares in (
            (sums.targets, sums.target_squares),
            (sums.errors, sums.error_squares),
        )
    ]
    # what float64 leaves of equal numbers
    least = 1e-12 * sums.target_squares / steps
    return 1.0 - variances[1] / variances[0] if variances[0] > least else math.nan
