"""The actor-critic loss on corrected targets and advantages."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ActorCriticLoss(NamedTuple):
    """Scalars: sums over the valid steps; `total` is what to differentiate, the rest is detached.

    Attributes:
        total: policy + value_cost · value − entropy_cost · entropy.
        policy: −log π(a) · weighted advantage.
        value: ½ (target − value)².
        entropy: of π, in nats.
    """

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor


def actor_critic_loss(
    *,
    log_probs: Tensor,
    taken_log_probs: Tensor,
    values: Tensor,
    targets: Tensor,
    advantages: Tensor,
    valid: Tensor,
    value_cost: float,
    entropy_cost: float,
) -> ActorCriticLoss:
    """Policy gradient, value regression and entropy bonus (Espeholt et al. 2018, §4.2).

    Args:
        log_probs: `[T, B, A]` log π, of every action.
        taken_log_probs: `[T, B]` log π of the action taken.
        values: `[T, B]`.
        targets: `[T, B]` value targets, no gradient.
        advantages: `[T, B]` already weighted for the policy gradient, no gradient.
        valid: `[T, B]` bool; other steps (resets, failed episodes) weigh nothing.
        value_cost: weight of ½ (target − value)².
        entropy_cost: weight of the entropy bonus.

    Returns:
        Sums, so that the parts of a batch add up; divide by the batch's valid steps.
    """
    zero = torch.zeros((), device=values.device)
    # where, not a product: what stands at an invalid step may be NaN. And around the factors, not
    # around their product: backwards, 0 × NaN would be NaN again.
    taken = torch.where(valid, taken_log_probs, zero)
    policy = -(taken * torch.where(valid, advantages, zero)).sum()
    value = 0.5 * torch.where(valid, targets - values, zero).square().sum()
    entropy = torch.where(valid, -(log_probs.exp() * log_probs).sum(-1), zero).sum()
    total = policy + value_cost * value - entropy_cost * entropy
    return ActorCriticLoss(total, policy.detach(), value.detach(), entropy.detach())
