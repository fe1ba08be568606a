"""Importance sampling: the weight of the policy gradient, and how far the data are off-policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from correctors._checks import check_bar, check_time_major
from correctors._ratios import clip_ratios, importance_ratios
from correctors.chain import Correction, CorrectionInput


def importance_weights(log_rhos: Tensor, *, rho_bar: float | None = 1.0) -> Tensor:
    """The weight min(ρ̄, π/μ) of each step's policy gradient (Espeholt et al. 2018, section 4.2).

    Args:
        log_rhos: log π(a|x) − log μ(a|x) of the actions taken, float32 [T, B].
        rho_bar: upper bound of a weight; None for no clipping.

    Returns:
        float32 [T, B]; no gradient flows through it.

    Raises:
        ValueError: a wrong shape, dtype or bar.
    """
    check_time_major(floats={"log_rhos": log_rhos})
    check_bar("rho_bar", rho_bar)
    with torch.no_grad():
        return clip_ratios(importance_ratios(log_rhos), rho_bar)


def effective_sample_size(log_rhos: Tensor, mask: Tensor) -> Tensor:
    """How many on-policy steps the masked steps are worth: (Σρ)² / Σρ² (Kish), of unclipped ρ.

    Lies between 1 and the number of masked steps, which it reaches where all ratios are equal;
    divide by `mask.sum()` for a share. 0 where no step is masked or every ratio is 0. What clipping
    cannot show, ratios that die towards 0, shows here.

    Args:
        log_rhos: log π(a|x) − log μ(a|x) of the actions taken, float32 [T, B]; not read (may be
            NaN) where `mask` is False.
        mask: the steps that count, bool [T, B].

    Returns:
        float32 scalar tensor on the inputs' device (no synchronisation); carries no gradient.

    Raises:
        ValueError: a wrong shape or dtype.
    """
    check_time_major(floats={"log_rhos": log_rhos}, bools={"mask": mask})
    with torch.no_grad():
        read = log_rhos.masked_fill(~mask, -math.inf)
        limits = torch.finfo(read.dtype)
        # The size does not depend on the ratios' scale; the largest becomes 1 so that no sum
        # overflows. The lower limit keeps −∞ − (−∞) from being NaN where all ratios are 0.
        ratios = (read - read.max().clamp(min=limits.min)).exp()
        return ratios.sum().square() / ratios.square().sum().clamp(min=limits.tiny)


def clipped_fraction(log_rhos: Tensor, rho_bar: float | None, mask: Tensor) -> Tensor:
    """The share of masked steps whose ratio exceeds `rho_bar` and is clipped by it.

    Near on-policy data and a bar of 1 it sits around one half, since rounding alone puts ratios
    just above 1; read it beside the effective sample size. 0 where no step is masked or `rho_bar`
    is None.

    Args:
        log_rhos: as in `effective_sample_size`.
        rho_bar: the bar that clips; None for no clipping.
        mask: the steps that count, bool [T, B].

    Returns:
        float32 scalar tensor on the inputs' device (no synchronisation), from 0 to 1.

    Raises:
        ValueError: a wrong shape, dtype or bar.
    """
    check_time_major(floats={"log_rhos": log_rhos}, bools={"mask": mask})
    check_bar("rho_bar", rho_bar)
    log_bar = math.inf if rho_bar is None else math.log(rho_bar)
    with torch.no_grad():
        clipped = (log_rhos > log_bar) & mask
        return clipped.sum() / mask.sum().clamp(min=1)


@dataclass(frozen=True)
class ImportanceSampling:
    """The corrector of the policy gradient: sets the weights to min(`rho_bar`, π/μ).

    Attributes:
        rho_bar: upper bound of a weight; None for no clipping.
    """

    rho_bar: float | None = 1.0

    needs: ClassVar[frozenset[str]] = frozenset({"log_rhos"})

    def __post_init__(self) -> None:
        check_bar("rho_bar", self.rho_bar)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with its weights replaced; targets and advantages stay."""
        weights = importance_weights(batch.required("log_rhos"), rho_bar=self.rho_bar)
        return replace(correction, weights=weights)
