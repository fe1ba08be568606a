"""The categorical distribution in torch, for learners."""

from __future__ import annotations

from torch import Tensor

from aclearn.distributions.categorical import MASKED
from aclearn.types import ActionSpec


def epsilon_greedy(logits: Tensor, epsilon: Tensor) -> Tensor:
    """Masked logits `[B, A]` of the best action with 1 − ε, and of any allowed one with ε `[B]`."""
    allowed = logits != MASKED
    # an agent that is out of the game may have no allowed action
    probabilities = allowed * (epsilon / allowed.sum(1).clamp(min=1)).unsqueeze(1)
    best = logits.argmax(1, keepdim=True)
    return probabilities.scatter_add(1, best, 1.0 - epsilon.unsqueeze(1)).log().clamp(min=MASKED)


class TorchCategorical:
    """Distributions of logits `[…, A]`, computed in float32.

    Attributes:
        log_probs: `[…, A]`, of every action.
    """

    def __init__(self, parameters: Tensor, spec: ActionSpec | None = None) -> None:
        self.log_probs = parameters.float().log_softmax(-1)

    @staticmethod
    def mask(parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Logits with `MASKED` where `mask` `[…, A]` is False; unchanged without a mask."""
        return parameters if mask is None else parameters.masked_fill(~mask, MASKED)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probabilities `[…]` of actions `[…]` int64."""
        return self.log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Entropies `[…]` in nats."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def kl(self, other: TorchCategorical) -> Tensor:
        """KL(self ‖ other) `[…]` in nats."""
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)
