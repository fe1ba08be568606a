"""GA3C's correction of the policy gradient: log(π + ε) or log max(π, ε) instead of log π."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from correctors._checks import check_positive
from correctors.chain import Correction, CorrectionInput


@dataclass(frozen=True)
class EpsilonCorrection:
    """An action that π has nearly given up, which an older μ still chose, moves π little.

    With "add", the paper's (Babaeizadeh et al. 2017), weights are multiplied by π/(π + ε), since
    ∇ log(π + ε) = π/(π + ε) · ∇ log π. With "max", its code's, they are 0 where π < ε, as the
    gradient of log max(π, ε) is. `epsilon` is a probability above 0.
    """

    epsilon: float = 1e-6
    form: Literal["add", "max"] = "add"

    needs: ClassVar[frozenset[str]] = frozenset({"log_pi"})

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        if self.form not in ("add", "max"):
            raise ValueError(f"form: expected add or max, got {self.form!r}")

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with other weights."""
        with torch.no_grad():
            probabilities = batch.required("log_pi").exp()
            if self.form == "max":
                weights = (probabilities >= self.epsilon).float()
            else:
                weights = probabilities / (probabilities + self.epsilon)
        return replace(correction, weights=correction.weights * weights)
