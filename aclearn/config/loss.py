"""The group `loss` and the list `correctors`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, SerializeAsAny, field_validator

from aclearn.config._fields import Group
from aclearn.config._named import NamedArguments, known

#: Largest bound of a ratio, and largest cost: beyond them float32 overflows.
_MOST_BAR, _MOST_COST = 3e38, 1e6


def _bar(value: Any) -> Any:
    return None if value == math.inf else value


#: Upper bound of an importance ratio; null, also written .inf, means none.
Bar = Annotated[float | None, Field(gt=0.0, le=_MOST_BAR), BeforeValidator(_bar)]


def _lambda() -> Any:
    return Field(
        default=1.0,
        ge=0.0,
        le=1.0,
        alias="lambda",  # a keyword of Python
        description="how far errors are carried back: 1 over the whole unroll, 0 one step",
    )


class LossConfig(Group):
    """Keys of all losses. A subclass is the model of one loss's arguments."""

    kind: str = Field(
        default="actor_critic",
        description="loss: actor_critic, or module:Name of yours, whose arguments are the other "
        "keys of this section",
    )
    discount: float = Field(
        default=0.99, ge=0.0, le=1.0, description="discount factor γ per agent step"
    )
    normalise_advantages: bool = Field(
        default=False,
        description="divide advantages by their running root mean square, so that entropy_cost "
        "does not depend on the size of rewards",
    )
    normalise_returns: bool = Field(
        default=False,
        description="the critic learns returns in units of their running mean and standard "
        "deviation (Pop-Art), and advantages are divided by the latter; for large or unknown "
        "rewards",
    )

    @classmethod
    def model_for(cls, data: Any) -> type[Group]:
        """The model of the loss that `data` names."""
        kind = data.get("kind", "actor_critic") if isinstance(data, Mapping) else "actor_critic"
        return LOSSES.get(str(kind), UsersLossConfig)

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        return known(kind, LOSSES)


def _loss_of_its_kind(data: Any) -> Any:
    return data if isinstance(data, LossConfig) else LossConfig.model_for(data).model_validate(data)


class ActorCriticConfig(LossConfig):
    """Policy gradient, value regression and entropy bonus."""

    entropy_cost: float = Field(
        default=0.01,
        ge=0.0,
        le=_MOST_COST,
        description="weight of the entropy bonus, loss per nat",
    )
    value_cost: float = Field(
        default=0.5,
        ge=0.0,
        le=_MOST_COST,
        description="weight of the value loss relative to the policy loss",
    )


class UsersLossConfig(LossConfig):
    """A user's own loss, which validates the further keys when its module is loaded."""

    model_config = ConfigDict(extra="allow")


LOSSES: dict[str, type[LossConfig]] = {"actor_critic": ActorCriticConfig}
"""The models of our losses by `loss.kind`."""


AnyLoss = Annotated[SerializeAsAny[LossConfig], BeforeValidator(_loss_of_its_kind)]
"""The section `loss`: a `LossConfig` of the kind that it names."""


class VTraceConfig(Group):
    """V-trace: value targets and advantages."""

    rho_bar: Bar = Field(
        default=1.0,
        description="bound of the importance ratio in the value targets; null or .inf: no bound",
    )
    c_bar: Bar = Field(
        default=1.0,
        description="bound of the importance ratio that carries errors back in time; null or "
        ".inf: no bound",
    )
    lambda_: float = _lambda()
    alpha: float = Field(
        default=1.0,
        ge=0.0,
        le=1.0,
        description="share of the bounded ratio, the rest being the ratio itself (leaky V-trace); "
        "1: V-trace, 0: per-decision importance sampling",
    )


class ImportanceSamplingConfig(Group):
    """Importance sampling: weights of the policy gradient."""

    rho_bar: Bar = Field(
        default=1.0,
        description="bound of the importance ratio in the policy gradient; null or .inf: no bound",
    )


class EpsilonCorrectionConfig(Group):
    """GA3C's correction: the policy gradient of log(π + ε)."""

    epsilon: float = Field(
        default=1e-6, gt=0.0, le=1.0, description="ε, added to the probability of an action"
    )


class KLFilterConfig(Group):
    """A filter of states; needs actors.behaviour_parameters."""

    bound: float = Field(
        gt=0.0,
        le=_MOST_COST,
        description="largest KL(π‖μ) of a state that is learned, in nats",
    )


class LambdaConfig(Group):
    """A corrector whose one argument is λ."""

    lambda_: float = _lambda()


Q_CORRECTORS = ("retrace", "tree_backup", "q_lambda", "q_importance_sampling")
"""Our correctors of action values, which need `policy.critic: q`."""

CORRECTORS: dict[str, type[Group]] = {
    "vtrace": VTraceConfig,
    "importance_sampling": ImportanceSamplingConfig,
    "epsilon_correction": EpsilonCorrectionConfig,
    "kl_filter": KLFilterConfig,
    "no_correction": LambdaConfig,
    **dict.fromkeys(Q_CORRECTORS, LambdaConfig),
}
"""The models of our correctors by their names."""


class CorrectorConfig(NamedArguments):
    """One corrector of the chain; in YAML `name` or `name: {arguments}`."""

    table = CORRECTORS


def default_correctors() -> tuple[CorrectorConfig, ...]:
    """V-trace with importance sampling."""
    names = ("vtrace", "importance_sampling")
    return tuple(CorrectorConfig.model_validate(name) for name in names)
