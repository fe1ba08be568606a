"""A loss from outside the packages: it makes one action likely, with targets frozen for a batch."""

from __future__ import annotations

import torch
from pydantic import Field

from aclearn.algorithms import Loss, LossSums, Outputs
from aclearn.config import LossConfig


class TowardActionConfig(LossConfig):
    action: int = Field(ge=0, description="the action")


class TowardAction(Loss):
    config_model = TowardActionConfig
    recomputes_targets = False

    def __call__(self, batch, outputs: Outputs, correction, config) -> LossSums:
        valid, zero = batch.valid, torch.zeros(())
        wanted = outputs.distribution.log_prob(torch.full_like(batch.actions, config.action))
        surprise = torch.where(valid, -wanted, zero).sum()
        error = torch.where(valid, outputs.values - correction.targets, zero).square().sum()
        moved = torch.where(valid, outputs.log_probs - outputs.proximal_log_probs, zero).abs().sum()
        return LossSums(
            surprise + 0.5 * error,
            {"surprise": surprise, "squared_error": error, "moved": moved},
        )
