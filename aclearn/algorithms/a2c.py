"""Advantage actor-critic: the actor-critic's loss, learned as if the newest policy had acted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from typing_extensions import override

from aclearn.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from aclearn.algorithms.keys import EntropyCost
from aclearn.config import Config
from aclearn.config.loss import LossKind

#: Correctors that give returns as they are.
_RETURNS = ("no_correction", "n_step")


class A2CConfig(ActorCriticConfig):
    """The actor-critic on the returns of the acting policy, without importance weights."""

    usual_correctors = ("no_correction",)
    # Mnih et al. 2016: returns of 5 steps; the step size is that of Stable-Baselines3
    usual: ClassVar[Mapping[str, Any]] = {
        "actors.unroll_length": 5,
        "optimiser.kind": "rmsprop_tf",
        "optimiser.learning_rate": 7e-4,
    }

    kind: LossKind = "a2c"
    entropy_cost: EntropyCost = 0.0

    @override
    def doubts(self, config: Config) -> Iterator[str]:
        if config.trainer.epochs > 1:
            yield (
                f"trainer.epochs: a2c learns each of {config.trainer.epochs} passes as if the "
                "newest policy had acted; set it to 1, or take loss.kind: ppo or actor_critic"
            )
        names = [each.name for each in config.correctors]
        if stay := [name for name in names if ":" not in name and name not in _RETURNS]:
            yield (
                f"correctors: {' and '.join(stay)} of the configuration stay beside a2c, which as "
                "published corrects nothing; remove the list, or set it to [no_correction]"
            )


class A2C(ActorCritic):
    """The actor-critic (Mnih et al. 2016), whose usual correctors are returns as they are."""

    config_model = A2CConfig
