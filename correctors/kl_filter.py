"""A filter: states where π and μ differ too much are not learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from correctors._checks import check_positive
from correctors.chain import Correction, CorrectionInput


@dataclass(frozen=True)
class KLFilter:
    """Keeps the states with KL(π‖μ) ≤ `bound`, in nats (after LASER, Schmitt et al. 2019).

    The others have no part in the loss. Traces still run over them.
    """

    bound: float

    needs: ClassVar[frozenset[str]] = frozenset({"kl"})

    def __post_init__(self) -> None:
        check_positive("bound", self.bound)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with fewer states kept; its metric `kl_dropped_share` is their share."""
        with torch.no_grad():
            kept = batch.required("kl") <= self.bound
        metrics = {**correction.metrics, "kl_dropped_share": (~kept).float()}
        if correction.kept is not None:
            kept &= correction.kept
        return replace(correction, kept=kept, metrics=metrics)
