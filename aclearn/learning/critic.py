"""The critic's estimates for a batch: state values, or action values under the target policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aclearn.distributions import TorchDistribution
from aclearn.distributions.torch_categorical import TorchCategorical
from aclearn.types import PolicyOutput


@dataclass(frozen=True)
class Estimates:
    """The critic's estimates for a batch, float32 without gradient.

    Attributes:
        values: `[T, B]`, V(x), of a Q critic Σ_a π(a|x) Q(x, a).
        next_values: `[T, B]`, of the observations that the steps reached.
        q_next: `[T, B, A]`, Q there; None of a V critic.
        next_target_probs: `[T, B, A]`, π there; None of a V critic.
    """

    values: Tensor
    next_values: Tensor
    q_next: Tensor | None = None
    next_target_probs: Tensor | None = None

    @classmethod
    def side_by_side(cls, parts: Sequence[Estimates]) -> Estimates:
        """The concatenated estimates of neighbouring environments."""
        given = {name for name, value in vars(parts[0]).items() if value is not None}
        return cls(
            **{name: torch.cat([getattr(part, name) for part in parts], dim=1) for name in given}
        )


def learned_values(output: PolicyOutput[Tensor], actions: Tensor) -> Tensor:
    """`[T, B]` float32 with gradient: V(x), of a Q critic Q(x, a) of the actions taken."""
    if output.q is not None:
        return output.q.float().gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    assert output.value is not None
    return output.value.float()


@torch.no_grad()
def estimates_of(
    output: PolicyOutput[Tensor],
    policy: TorchDistribution,
    last: PolicyOutput[Tensor],
    last_policy: TorchDistribution,
) -> Estimates:
    """The estimates for T steps.

    Args:
        last: for the observations `[B, …]` that the last step reached.
    """
    if output.q is None or last.q is None:
        assert output.value is not None and last.value is not None
        values = _followed_by(output.value.float(), last.value.float())
        return Estimates(values[:-1], values[1:])
    q = _followed_by(output.q.float(), last.q.float())
    probs = _followed_by(_probs(policy), _probs(last_policy))
    values = (probs * q).sum(-1)
    return Estimates(values[:-1], values[1:], q[1:], probs[1:])


def _followed_by(steps: Tensor, last: Tensor) -> Tensor:
    return torch.cat([steps, last.unsqueeze(0)])


def _probs(policy: Any) -> Tensor:
    assert isinstance(policy, TorchCategorical)  # a Q critic rejects other actions
    return policy.log_probs.exp()
