"""The one-step bootstrap that every value corrector builds on."""

from __future__ import annotations

from torch import Tensor


def bootstrapped(rewards: Tensor, discounts: Tensor, next_values: Tensor) -> Tensor:
    """The one-step return r + γ V(x'), which does not read `next_values` where `discounts` is 0.

    A terminated step has no next observation, so its next value may be anything; a bare product
    would let a NaN or an infinity through.
    """
    return rewards + discounts * next_values.masked_fill(discounts == 0.0, 0.0)
