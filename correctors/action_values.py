"""Returns of actions: off-policy targets of Q(x, a) with a trace (Munos et al. 2016, eq. 4).

The functions differ in the factor c that carries an error one step back. They share

    G_t = r_t + γ_t · (Σ_a π(a|x_{t+1}) Q(x_{t+1}, a) + c_{t+1} · (G_{t+1} − Q(x_{t+1}, a_{t+1})))

and the arguments `Steps`. Further ones are `lambda_`, the decay of the trace from 0 (one step) to
1, and `next_log_rhos` [T, B] float32, log π(a) − log μ(a) of `next_actions`. Each returns the
targets G of Q(x_t, a_t), [T, B] float32 without gradient. It raises `ValueError` for a wrong shape,
dtype, device or λ, and for T or B of 0; `TypeError` for a missing or an unexpected keyword.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

import torch
from torch import Tensor

from correctors._checks import check_fraction, check_time_major
from correctors._recursion import accumulate, bootstrapped
from correctors.importance import importance_ratios


class Steps(TypedDict):
    """Time-major tensors of T steps; "next" means the observation that a step reached.

    Attributes:
        q_next: [T, B, A] float32, Q before any reset; not read where `discounts` is 0.
        next_actions: [T, B] int64, chosen there; not read at a done step or the last one, nor are
            `next_log_rhos`.
        next_target_probs: [T, B, A] float32, π; not read where `discounts` is 0.
        rewards: [T, B] float32, r_t.
        discounts: [T, B] float32, γ · (1 − terminated); a truncated step keeps γ.
        done: [T, B] bool, terminated or truncated; cuts the trace after the step.
    """

    q_next: Tensor
    next_actions: Tensor
    next_target_probs: Tensor
    rewards: Tensor
    discounts: Tensor
    done: Tensor


@torch.no_grad()
def retrace(*, next_log_rhos: Tensor, lambda_: float, **steps: Unpack[Steps]) -> Tensor:
    """Retrace(λ), c = λ · min(1, ρ): safe for any μ, with a long trace where μ is near π."""
    _check("retrace", steps, lambda_, next_log_rhos=next_log_rhos)
    return _returns(lambda_ * importance_ratios(next_log_rhos).clamp(max=1.0), **steps)


@torch.no_grad()
def tree_backup(*, lambda_: float, **steps: Unpack[Steps]) -> Tensor:
    """Tree-backup(λ), c = λ · π(a): needs no μ, but shortens the trace on-policy too."""
    _check("tree_backup", steps, lambda_)
    probabilities = _taken(steps["next_target_probs"], steps["next_actions"], steps["done"])
    return _returns(lambda_ * probabilities, **steps)


@torch.no_grad()
def q_lambda(*, lambda_: float, **steps: Unpack[Steps]) -> Tensor:
    """Q^π(λ), c = λ: the longest trace; converges where μ is near π, nearer for a larger λ."""
    _check("q_lambda", steps, lambda_)
    return _returns(torch.full_like(steps["rewards"], lambda_), **steps)


@torch.no_grad()
def importance_sampling(*, next_log_rhos: Tensor, lambda_: float, **steps: Unpack[Steps]) -> Tensor:
    """Per-decision importance sampling, c = λ · ρ: right for any μ, of unbounded variance.

    A ratio is finite, as in `importance_ratios`; the product of several may not be.
    """
    _check("importance_sampling", steps, lambda_, next_log_rhos=next_log_rhos)
    return _returns(lambda_ * importance_ratios(next_log_rhos), **steps)


def _check(function: str, steps: Steps, lambda_: float, **ratios: Tensor) -> None:
    if differing := sorted(steps.keys() ^ Steps.__required_keys__):
        problem = "misses the" if differing[0] in Steps.__required_keys__ else "got an unexpected"
        raise TypeError(f"{function}() {problem} keyword argument {differing[0]!r}")
    check_fraction("lambda_", lambda_)
    check_time_major(
        floats={"rewards": steps["rewards"], "discounts": steps["discounts"], **ratios},
        bools={"done": steps["done"]},
        actions={"next_actions": steps["next_actions"]},
        vectors={name: steps[name] for name in ("q_next", "next_target_probs")},
    )


def _returns(
    trace: Tensor,
    *,
    q_next: Tensor,
    next_actions: Tensor,
    next_target_probs: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    done: Tensor,
) -> Tensor:
    one_step = bootstrapped(rewards, discounts, (next_target_probs * q_next).sum(2))
    decay = (discounts * trace).masked_fill(_unread(done), 0.0)
    differences = one_step - decay * _taken(q_next, next_actions, done)
    return accumulate(differences, decay=decay, done=done)


def _taken(values: Tensor, actions: Tensor, done: Tensor) -> Tensor:
    """`values` [T, B, A] of `actions`; 0 where the next action is not read."""
    unread = _unread(done)
    index = actions.masked_fill(unread, 0).unsqueeze(2)
    return values.gather(2, index).squeeze(2).masked_fill(unread, 0.0)


def _unread(done: Tensor) -> Tensor:
    """The steps that read no next action: the done ones and the last."""
    unread = done.clone()
    unread[-1] = True
    return unread
