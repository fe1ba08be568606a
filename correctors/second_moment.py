"""M2PO: the steps with the largest log ratios are masked until their second moment is small."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from correctors._checks import check_positive
from correctors.chain import Correction, CorrectionInput
from correctors.importance import MAX_LOG_RHO
from correctors.parts import Part, check_part, log_ratios, needs_of, part_of


@dataclass(frozen=True)
class SecondMoment:
    """Weights are 0 of the steps with the largest (log ρ)², so that the others' mean is ≤ `bound`.

    M2PO (Zheng et al. 2025, arXiv 2510.01161, eq. 4): M̂₂ = 1/N Σ (log r_i)² over the steps of an
    update; the largest are masked until M̂₂ of the rest is at most τ = 0.04. The procedure is
    AReaL's (`areal/trainer/ppo/actor.py`), but that steps as large as a masked one are masked too,
    and that no step need remain. Targets keep all steps: M2PO has no critic.
    """

    bound: float = 0.04
    part: Part = "ratio"

    def __post_init__(self) -> None:
        check_positive("bound", self.bound)
        check_part(self.part)

    @property
    def needs(self) -> frozenset[str]:
        """The fields that it reads."""
        return needs_of(self.part) | {"log_rhos", "valid"}

    def measure(self, log_rhos: Tensor, log_gaps: Tensor) -> Tensor:
        """The least (log ρ)² that is masked, `[]`; infinity where none is."""
        ascending = _squares(part_of(log_rhos, log_gaps, self.part)).sort().values  # NaN last
        counts = torch.arange(1, len(ascending) + 1, device=ascending.device)
        means = ascending.cumsum(0) / counts  # they never fall, so that those in bounds come first
        kept = (means <= self.bound).sum()
        beyond = torch.cat([ascending, ascending.new_full((1,), torch.inf)])
        return beyond.index_select(0, kept.unsqueeze(0)).squeeze(0).nan_to_num(torch.inf)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with other weights; metric `second_moment_masked_share`."""
        with torch.no_grad():
            masked = ~(_squares(log_ratios(batch, self.part)) < batch.required("measured"))
            weights = correction.weights.masked_fill(masked, 0.0)
        metrics = {**correction.metrics, "second_moment_masked_share": masked.float()}
        return replace(correction, weights=weights, metrics=metrics)


def _squares(log_ratios: Tensor) -> Tensor:
    return log_ratios.clamp(-MAX_LOG_RHO, MAX_LOG_RHO).double().square()
