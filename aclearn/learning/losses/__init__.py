"""Losses: sums over the valid steps of a batch, and their metrics."""

from __future__ import annotations

from aclearn.learning.losses.actor_critic import ActorCritic
from aclearn.learning.losses.ddpg import DDPG
from aclearn.learning.losses.impact import IMPACT
from aclearn.learning.losses.loss import Loss, LossSums, Outputs
from aclearn.learning.losses.ppo import PPO

#: Our losses by `loss.kind`. A2C has the sums of the actor-critic and correctors of its own.
LOSSES: dict[str, type[Loss]] = {
    "actor_critic": ActorCritic,
    "a2c": ActorCritic,
    "ppo": PPO,
    "impact": IMPACT,
    "ddpg": DDPG,
}

__all__ = ["DDPG", "IMPACT", "LOSSES", "PPO", "ActorCritic", "Loss", "LossSums", "Outputs"]
