"""The actor-critic loss on corrected targets and advantages."""

from __future__ import annotations

import torch

from aclearn.config import ActorCriticConfig
from aclearn.learning.batch import Batch
from aclearn.learning.losses.loss import Loss, LossSums, Outputs
from correctors import Correction


class ActorCritic(Loss):
    """Policy gradient, value regression and entropy bonus (Espeholt et al. 2018, §4.2).

    The total is policy_loss + value_cost · value_loss − entropy_cost · entropy. Its metrics are
    these three: −log π(a) · weighted advantage, ½ (target − value)², and the entropy of π in nats.
    """

    config_model = ActorCriticConfig

    def __call__(
        self, batch: Batch, outputs: Outputs, correction: Correction, config: ActorCriticConfig
    ) -> LossSums:
        """As `Loss.__call__`."""
        valid, zero = batch.valid, torch.zeros((), device=outputs.values.device)
        # `where`, not a product: an invalid step may hold NaN. Around the factors, not around
        # their product: in the backward pass 0 × NaN is NaN.
        taken = torch.where(valid, outputs.log_probs, zero)
        policy = -(taken * torch.where(valid, correction.weighted_advantages, zero)).sum()
        value = 0.5 * torch.where(valid, correction.targets - outputs.values, zero).square().sum()
        entropy = torch.where(valid, outputs.distribution.entropy(), zero).sum()
        total = policy + config.value_cost * value - config.entropy_cost * entropy
        return LossSums(total, {"policy_loss": policy, "value_loss": value, "entropy": entropy})
