"""The deterministic policy gradient."""

from __future__ import annotations

import torch

from aclearn.config import DDPGConfig
from aclearn.learning.batch import Batch
from aclearn.learning.losses.loss import Loss, LossSums, Outputs
from correctors import Correction


class DDPG(Loss):
    """The policy μ climbs the critic Q, which regresses targets (Sha & Lan 2024, algorithm 2).

    The total is policy_loss + value_loss. Of each step, policy_loss is −Q(x, μ(x)), whose gradient
    reaches the weights of μ alone, and value_loss is ½ (target − Q(x, a))² of the action taken.
    Targets are by μ and Q of the target network.
    """

    config_model = DDPGConfig
    recomputes_targets = False
    needs = frozenset({"targets"})

    def __call__(
        self, batch: Batch, outputs: Outputs, correction: Correction, config: DDPGConfig
    ) -> LossSums:
        """As `Loss.__call__`."""
        assert outputs.mode_values is not None  # the configuration's checks see to it
        valid, zero = batch.valid, torch.zeros((), device=outputs.values.device)
        policy = -torch.where(valid, outputs.mode_values, zero).sum()
        value = 0.5 * torch.where(valid, correction.targets - outputs.values, zero).square().sum()
        return LossSums(policy + value, {"policy_loss": policy, "value_loss": value})
