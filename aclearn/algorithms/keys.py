"""Keys of the section `loss` that several algorithms have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from aclearn.config import Config, LossConfig, Whole

#: Largest weight of a term of the loss: beyond it float32 overflows.
MAX_COST = 1e6

EntropyCost = Annotated[
    float,
    Field(ge=0.0, le=MAX_COST, description="weight of the entropy bonus, loss per nat"),
]
ValueCost = Annotated[
    float,
    Field(
        ge=0.0,
        le=MAX_COST,
        description="weight of the value loss, half a squared error, relative to the policy loss",
    ),
]
TargetUpdateEvery = Annotated[
    Whole,
    Field(
        ge=1,
        le=1_000_000,
        description="updates from one change of the target network to the next",
    ),
]
TargetUpdateRate = Annotated[
    float,
    Field(
        gt=0.0,
        le=1.0,
        description="τ: share of the way to the newest weights that it then goes; 1 copies them",
    ),
]


class TargetNetworkConfig(LossConfig):
    """Keys of a loss whose targets come from a target network."""

    target_update_every: TargetUpdateEvery = 32
    target_update_rate: TargetUpdateRate = 1.0

    @override
    def contradictions(self, config: Config) -> Iterator[str]:
        yield from super().contradictions(config)
        normalised = self.normalise_returns or config.policy.normalise_observations
        if self.target_update_rate < 1.0 and normalised:
            yield (
                "loss.target_update_rate: below 1 it would mix weights with the statistics of "
                "other ones; set it to 1, or loss.normalise_returns and "
                "policy.normalise_observations to false"
            )


def without_effect(config: Config, whys: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each key, `section.key` → why not, that is given and must not be."""
    for dotted, why in whys.items():
        section, _, key = dotted.partition(".")
        if any(getattr(config, section).changed(key)):
            yield f"{dotted}: {why}; remove it"


class ActionCriticConfig(LossConfig):
    """An algorithm whose critics value the numbers that the policy squashes by tanh."""

    @override
    def contradictions(self, config: Config) -> Iterator[str]:
        yield from super().contradictions(config)
        kind, policy = self.kind, config.policy
        if not config.env.squash_actions:
            yield f"env.squash_actions: the policy of {kind} ends with tanh; set it to true"
        if policy.is_users:
            yield (
                f"policy.architecture: {kind} adds a critic of actions to a network of aclearn, "
                f"and {policy.architecture} is yours; set it to mlp"
            )
        yield from without_effect(
            config,
            {
                "policy.critic": f"{kind} has a critic of its own",
                "policy.separate_value": f"the critic of {kind} has hidden layers of its own",
                "loss.normalise_advantages": f"{kind} has no advantages",
                "loss.normalise_returns": f"{kind} learns returns as they are",
            },
        )


class NoiseConfig(LossConfig):
    """Keys of a deterministic policy, whose actors add Ornstein–Uhlenbeck noise to its actions."""

    acting = "noise"

    noise_std: float = Field(
        default=0.2,
        ge=0.0,
        le=10.0,
        description="exploration: deviation of the random change of the noise in a step, where an "
        "action's bounds are -1 and 1",
    )
    noise_damping: float = Field(
        default=0.15,
        gt=0.0,
        le=1.0,
        description="exploration: share of the noise that a step takes away; 1: independent noise",
    )


class EpsilonConfig(LossConfig):
    """Keys of a policy of action values, whose actors take the best action or, with ε, any."""

    acting = "epsilon"

    epsilon: float = Field(
        default=0.4,
        gt=0.0,
        le=1.0,
        description="exploration: of N environments, number i of 0 to N − 1 takes an action at "
        "random with probability ε^(1 + α·i/(N − 1)); a single one with ε^(1 + α/2)",
    )
    epsilon_exponent: float = Field(
        default=7.0,
        ge=0.0,
        le=100.0,
        description="exploration: α; 0: ε is the same in all environments",
    )
    epsilon_steps: Whole = Field(
        default=1000,
        ge=0,
        le=2**31,
        description="exploration: agent steps of each environment, from its actor's start, in "
        "which that probability falls from 1",
    )
