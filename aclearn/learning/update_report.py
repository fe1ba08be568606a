"""The figures of one update."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class UpdateReport:
    """What one update did.

    Attributes:
        applied: False when the gradient was not finite and the weights stayed as they were.
        metrics: by name: those of the loss and of the correctors, means over the valid steps;
            `gradient_norm`, Euclidean, of the mean loss's gradient before clipping;
            `effective_sample_share`, (Σρ)² / (n Σρ²), 0 to 1; and `learning_rate`.
    """

    applied: bool
    metrics: Mapping[str, float]

    def gauges(self) -> dict[str, float]:
        """The finite metrics."""
        return {name: value for name, value in self.metrics.items() if math.isfinite(value)}
