"""The figures of one update."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class UpdateReport:
    """What one update did; losses, entropy and shares are of the valid steps of its minibatch.

    Attributes:
        applied: False when the gradient was not finite and the weights stayed as they were.
        policy_loss: mean of −log π(a) · weighted advantage.
        value_loss: mean of ½ (target − value)².
        entropy: mean of π's, in nats.
        gradient_norm: Euclidean norm of the mean loss's gradient, before clipping.
        effective_sample_share: (Σρ)² / (n Σρ²), 0 to 1.
        clipped_rho_share: share of the steps with ρ above ρ̄.
        learning_rate: of this update.
    """

    applied: bool
    policy_loss: float
    value_loss: float
    entropy: float
    gradient_norm: float
    effective_sample_share: float
    clipped_rho_share: float
    learning_rate: float

    def gauges(self) -> dict[str, float]:
        """The finite numbers by name, as the metrics name them."""
        values = {
            "policy_loss": self.policy_loss,
            "value_loss": self.value_loss,
            "entropy": self.entropy,
            "gradient_norm": self.gradient_norm,
            "effective_sample_share": self.effective_sample_share,
            "clipped_rho_share": self.clipped_rho_share,
            "learning_rate": self.learning_rate,
        }
        return {name: value for name, value in values.items() if np.isfinite(value)}
