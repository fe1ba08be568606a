"""Algorithms, a file each: the keys of the section `loss`, and the loss. Imports no torch."""

from __future__ import annotations

from aclearn.algorithms.algorithm import (
    Algorithm,
    Group,
    Loss,
    LossSums,
    Outputs,
    TargetCopies,
)
from aclearn.algorithms.keys import TargetNetworkConfig

#: `loss.kind` → the class, whose `config_model` is the model of the section `loss`.
ALGORITHMS = {
    "actor_critic": "aclearn.algorithms.actor_critic:ActorCritic",
    "a2c": "aclearn.algorithms.a2c:A2C",
    "ppo": "aclearn.algorithms.ppo:PPO",
    "impact": "aclearn.algorithms.impact:IMPACT",
    "dqn": "aclearn.algorithms.dqn:DQN",
    "ddpg": "aclearn.algorithms.ddpg:DDPG",
    "sac": "aclearn.algorithms.sac:SAC",
}

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Group",
    "Loss",
    "LossSums",
    "Outputs",
    "TargetCopies",
    "TargetNetworkConfig",
]
