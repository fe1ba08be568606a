"""V-trace: value targets and policy-gradient advantages from off-policy unrolls."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from correctors._checks import check_bar, check_fraction
from correctors._recursion import accumulate, bootstrapped
from correctors.chain import Correction, CorrectionInput
from correctors.importance import clip_ratios, importance_ratios, importance_weights


class VTraceReturns(NamedTuple):
    """Results of V-trace, both float32 [T, B] and without gradient.

    Attributes:
        targets: v_s, the regression targets of the values.
        advantages: r_s + γ q_s − V(x_s); those of `vtrace` times the importance weight, the factor
            of ∇ log π.
    """

    targets: Tensor
    advantages: Tensor


def vtrace(
    *,
    values: Tensor,
    next_values: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    done: Tensor,
    log_rhos: Tensor,
    rho_bar: float | None = 1.0,
    c_bar: float | None = 1.0,
    pg_rho_bar: float | None = 1.0,
    lambda_: float = 1.0,
    alpha: float = 1.0,
) -> VTraceReturns:
    """V-trace value targets and weighted advantages (Espeholt et al. 2018, eq. 1 and section 4.2).

    The tensors are those of `CorrectionInput`: time-major [T, B], float32 except `done`. Log ratios
    are clamped before the exponential, so that none overflows. A done step reads nothing of later
    steps, even NaN: several episodes in one trace are independent, and a masked autoreset step
    between them has no effect. The step before an autoreset must therefore be done. The last step
    bootstraps from its own `next_values`.

    Args:
        rho_bar: bound of the ratios in the temporal differences: selects the policy whose value is
            learned, between V^μ (→ 0) and V^π (∞). None for no clipping, as for the other bars.
        c_bar: bound of the ratios in the trace: speed against variance, not the fixed point.
            Without it, their product over many steps is unbounded.
        pg_rho_bar: bound of the advantages' weights.
        lambda_: decay of the trace from 0 (one-step) to 1, in targets and in the bootstrap of the
            advantages, λ · targets[t+1] + (1 − λ) · next_values[t].
        alpha: share of the bound in targets and trace, α · min(bar, ρ) + (1 − α) · ρ (leaky
            V-trace, Zahavy et al. 2020): 1 is V-trace, 0 per-decision importance sampling.

    Returns:
        Targets and advantages [T, B]; no gradient flows through either.

    Raises:
        ValueError: a wrong rank, shape, dtype, device, bar, λ or α; T or B of 0.
    """
    check_bar("pg_rho_bar", pg_rho_bar)
    corrector = VTrace(rho_bar, c_bar, lambda_, alpha)
    batch = CorrectionInput(values, next_values, rewards, discounts, done, log_rhos)
    targets, advantages = corrector.returns(batch)
    weights = importance_weights(log_rhos, rho_bar=pg_rho_bar)
    return VTraceReturns(targets, weights * advantages)


@dataclass(frozen=True)
class VTrace:
    """The corrector of values: sets targets and unweighted advantages by V-trace.

    With `ImportanceSampling` it equals `vtrace` with `pg_rho_bar` = `ImportanceSampling.rho_bar`.
    Attributes as in `vtrace`.
    """

    rho_bar: float | None = 1.0
    c_bar: float | None = 1.0
    lambda_: float = 1.0
    alpha: float = 1.0

    needs: ClassVar[frozenset[str]] = frozenset(
        {"values", "next_values", "rewards", "discounts", "done", "log_rhos"}
    )

    def __post_init__(self) -> None:
        check_bar("rho_bar", self.rho_bar)
        check_bar("c_bar", self.c_bar)
        check_fraction("lambda_", self.lambda_)
        check_fraction("alpha", self.alpha)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with targets and advantages replaced.

        Its metrics `clipped_rho_share` and `clipped_c_share` are the shares of steps whose ratio is
        above `rho_bar` and above `c_bar`.
        """
        targets, advantages = self.returns(batch)
        log_rhos, metrics = batch.required("log_rhos"), dict(correction.metrics)
        for name, bar in (("rho", self.rho_bar), ("c", self.c_bar)):
            log_bar = math.inf if bar is None else math.log(bar)
            metrics[f"clipped_{name}_share"] = (log_rhos > log_bar).float()
        return replace(correction, targets=targets, advantages=advantages, metrics=metrics)

    def returns(self, batch: CorrectionInput) -> VTraceReturns:
        """Targets and the unweighted advantages r + γ q − V."""
        with torch.no_grad():
            rhos = importance_ratios(batch.required("log_rhos"))
            weights = clip_ratios(rhos, self.rho_bar, self.alpha)
            trace = clip_ratios(rhos, self.c_bar, self.alpha)
            return lambda_returns(batch, weights=weights, trace=trace, lambda_=self.lambda_)


def lambda_returns(
    batch: CorrectionInput, *, weights: Tensor, trace: Tensor, lambda_: float
) -> VTraceReturns:
    """The λ-returns whose temporal differences are weighted, and carried back by λ · `trace`.

    The targets of a Q critic are r + γ q: the first action is given, so its ratio has no part.
    """
    values, next_values, done = batch.values, batch.next_values, batch.done
    differences = bootstrapped(batch.rewards, batch.discounts, next_values) - values
    decay = batch.discounts * trace * lambda_
    targets = values + accumulate(weights * differences, decay=decay, done=done)
    bootstraps = next_values.clone()
    mixed = torch.lerp(next_values[:-1], targets[1:], lambda_)
    # After a done step targets[t + 1] belongs to another episode.
    bootstraps[:-1] = torch.where(done[:-1], next_values[:-1], mixed)
    returns = bootstrapped(batch.rewards, batch.discounts, bootstraps)
    return VTraceReturns(targets if batch.q_next is None else returns, returns - values)
