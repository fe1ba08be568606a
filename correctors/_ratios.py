"""Importance ratios π/μ from their logarithms, safe against overflow."""

from __future__ import annotations

from torch import Tensor

#: Largest log ratio that is exponentiated: e^20 = 4.9e8 is far beyond any useful weight, and a
#: product of four of them still fits into float32 (largest 3.4e38).
MAX_LOG_RHO = 20.0


def importance_ratios(log_rhos: Tensor) -> Tensor:
    """The unclipped ratios π(a|x)/μ(a|x), finite for every log ratio that is not NaN.

    −∞ (an action that π has ruled out) gives exactly 0; log ratios above `MAX_LOG_RHO` give
    e^`MAX_LOG_RHO`.
    """
    return log_rhos.clamp(max=MAX_LOG_RHO).exp()


def clip_ratios(rhos: Tensor, bar: float | None) -> Tensor:
    """min(`bar`, ρ), or the ratios themselves where `bar` is None."""
    return rhos if bar is None else rhos.clamp(max=bar)
