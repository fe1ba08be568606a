"""The backward recursion that every corrector of returns shares."""

from __future__ import annotations

import torch
from torch import Tensor


def bootstrapped(rewards: Tensor, discounts: Tensor, next_values: Tensor) -> Tensor:
    """The one-step return r + γ V(x'), which does not read `next_values` where `discounts` is 0.

    A terminated step has no next observation, so its next value may be NaN or infinite; a bare
    product would keep that.
    """
    return rewards + discounts * next_values.masked_fill(discounts == 0.0, 0.0)


def accumulate(differences: Tensor, *, decay: Tensor, done: Tensor) -> Tensor:
    """e_t = differences_t + decay_t · e_{t+1}; e_{t+1} is 0 after a done or last step.

    All are [T, B]. No step reads the errors behind a done one.
    """
    zero = differences.new_zeros(())
    steps = list(differences.unbind(0))
    decays = decay.unbind(0)
    ends = done.unbind(0)
    for t in range(len(steps) - 2, -1, -1):
        # `where`, not a product: 0 × NaN would leak a masked step into its predecessor. The loop
        # costs 0.13 ms at T=20 on one core, of some 200 ms for the update. Not in place:
        # `torch.func.vmap` would call `addcmul_` for one member after the other.
        steps[t] = torch.addcmul(steps[t], decays[t], torch.where(ends[t], zero, steps[t + 1]))
    return torch.stack(steps)
