"""GA3C's correction of the policy gradient: log(π + ε) instead of log π."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from correctors._checks import check_positive
from correctors.chain import Correction, CorrectionInput


@dataclass(frozen=True)
class EpsilonCorrection:
    """Multiplies the weights by π/(π + ε), since ∇ log(π + ε) = π/(π + ε) · ∇ log π.

    An action that π has nearly given up, which an older μ still chose, then moves π little
    (Babaeizadeh et al. 2017). `epsilon` is a probability above 0.
    """

    epsilon: float = 1e-6

    needs: ClassVar[frozenset[str]] = frozenset({"log_pi"})

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with other weights."""
        with torch.no_grad():
            probabilities = batch.required("log_pi").exp()
            weights = probabilities / (probabilities + self.epsilon)
        return replace(correction, weights=correction.weights * weights)
