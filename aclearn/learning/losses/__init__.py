"""Losses: sums over the valid steps of a batch, and their metrics."""

from __future__ import annotations

from aclearn.learning.losses.actor_critic import ActorCritic
from aclearn.learning.losses.loss import Loss, LossSums, Outputs

#: Our losses by `loss.kind`.
LOSSES: dict[str, type[Loss]] = {"actor_critic": ActorCritic}

__all__ = ["LOSSES", "ActorCritic", "Loss", "LossSums", "Outputs"]
