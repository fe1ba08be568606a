"""The group `loss` and the list `correctors`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, SerializeAsAny, field_validator

from aclearn.config._fields import Group, Whole
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


def _kind(kind: str) -> Any:
    return Field(
        default=kind,
        description="loss: actor_critic, a2c, ppo, impact, ddpg, or module:Name of yours, whose "
        "arguments are the other keys of this section (docs/algorithms.md)",
    )


class LossConfig(Group):
    """Keys of all losses. A subclass is the model of one loss's arguments.

    Attributes:
        usual_correctors: the list `correctors` of a configuration without one.
        usual: defaults of keys of other sections, where they differ from these sections' own;
            dotted key → value.
    """

    usual_correctors: ClassVar[tuple[Any, ...]] = ("vtrace", "importance_sampling")
    usual: ClassVar[Mapping[str, Any]] = {}

    kind: str = _kind("actor_critic")
    discount: float = Field(
        default=0.99, ge=0.0, le=1.0, description="discount factor γ per agent step"
    )
    normalise_advantages: bool = Field(
        default=False,
        description="normalise advantages, so that entropy_cost does not depend on the size of "
        "rewards: divide them by their running root mean square; with ppo and impact subtract the "
        "batch's mean and divide by its standard deviation",
    )
    normalise_returns: bool = Field(
        default=False,
        description="the critic learns returns in units of their running mean and standard "
        "deviation (Pop-Art), and advantages are divided by the latter; for large or unknown "
        "rewards",
    )

    @classmethod
    def model_for(cls, data: Any) -> type[LossConfig]:
        """The model of the loss that `data` names."""
        kind = data.get("kind", "actor_critic") if isinstance(data, Mapping) else "actor_critic"
        return LOSSES.get(str(kind), UsersLossConfig)

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        return known(kind, LOSSES)


def _loss_of_its_kind(data: Any) -> Any:
    return data if isinstance(data, LossConfig) else LossConfig.model_for(data).model_validate(data)


def _entropy_cost(default: float) -> Any:
    return Field(
        default=default,
        ge=0.0,
        le=_MOST_COST,
        description="weight of the entropy bonus, loss per nat",
    )


def _value_cost(default: float) -> Any:
    return Field(
        default=default,
        ge=0.0,
        le=_MOST_COST,
        description="weight of the value loss, half a squared error, relative to the policy loss",
    )


class ActorCriticConfig(LossConfig):
    """Policy gradient, value regression and entropy bonus."""

    entropy_cost: float = _entropy_cost(0.01)
    value_cost: float = _value_cost(0.5)


class A2CConfig(ActorCriticConfig):
    """The actor-critic on the returns of the acting policy, without importance weights."""

    usual_correctors = ("no_correction",)
    # Mnih et al. 2016: returns of 5 steps; the step size is that of Stable-Baselines3
    usual: ClassVar[Mapping[str, Any]] = {
        "actors.unroll_length": 5,
        "optimiser.kind": "rmsprop_tf",
        "optimiser.learning_rate": 7e-4,
    }

    kind: str = _kind("a2c")
    entropy_cost: float = _entropy_cost(0.0)


class PPOConfig(LossConfig):
    """Proximal policy optimisation with clipped ratios."""

    usual_correctors = ({"vtrace": {"lambda": 0.95}}, "importance_sampling")
    # Schulman et al. 2017, as Stable-Baselines3 and CleanRL have it: about ten passes over a batch
    usual: ClassVar[Mapping[str, Any]] = {
        "actors.unroll_length": 128,
        "trainer.minibatches": 32,
        "trainer.epochs": 10,
    }

    kind: str = _kind("ppo")
    normalise_advantages: bool = Field(
        default=True,
        description="subtract the batch's mean advantage and divide by the standard deviation",
    )
    clip_range: float = Field(
        default=0.2,
        gt=0.0,
        lt=1.0,
        description="ε: beyond 1 ± ε a ratio to the policy before the batch gains nothing more",
    )
    value_clip: float | None = Field(
        default=None,
        gt=0.0,
        description="largest change of a value in one batch that is rewarded; null: no bound",
    )
    entropy_cost: float = _entropy_cost(0.0)
    value_cost: float = _value_cost(1.0)
    target_kl: float | None = Field(
        default=None,
        gt=0.0,
        description="mean KL divergence from the policy before the batch, in nats, above which "
        "the remaining epochs of the batch are left out; null: no bound",
    )


class TargetNetworkConfig(LossConfig):
    """Keys of a loss whose targets come from a target network."""

    target_update_every: Whole = Field(
        default=32,
        ge=1,
        le=1_000_000,
        description="updates from one change of the target network to the next",
    )
    target_update_rate: float = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        description="share of the way to the newest weights that it then goes; 1 copies them",
    )


class IMPACTConfig(PPOConfig, TargetNetworkConfig):
    """PPO's clip around a target network, which outlives a batch."""

    # the clip is around weights of the past, so that few passes over a batch are enough
    usual: ClassVar[Mapping[str, Any]] = {
        "actors.unroll_length": 64,
        "trainer.minibatches": 8,
        "trainer.epochs": 2,
    }

    kind: str = _kind("impact")
    clip_range: float = Field(
        default=0.3,
        gt=0.0,
        lt=1.0,
        description="ε: beyond 1 ± ε a ratio to the target network gains nothing more",
    )
    ratio_bar: float = Field(
        default=2.0,
        ge=1.0,
        le=_MOST_BAR,
        description="bound of μ/π_target in the ratio min(bound, μ/π_target) · π/μ",
    )
    target_kl: float | None = Field(
        default=None,
        gt=0.0,
        description="mean KL divergence from the target network, in nats, above which the "
        "remaining epochs of a batch are left out; null: no bound",
    )


class DDPGConfig(TargetNetworkConfig):
    """HDDPG: a deterministic policy for Box actions, and a critic of its actions."""

    usual_correctors = ("n_step",)
    usual: ClassVar[Mapping[str, Any]] = {  # of resident/pendulum_hddpg
        "actors.unroll_length": 8,
        "trainer.minibatches": 4,
        "trainer.epochs": 2,
        "optimiser.learning_rate": 1e-3,
        "optimiser.max_grad_norm": 0.0,
    }

    kind: str = _kind("ddpg")
    target_update_every: Whole = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="updates from one change of the target network to the next",
    )
    target_update_rate: float = Field(
        default=0.05,
        gt=0.0,
        le=1.0,
        description="τ: share of the way to the newest weights that it then goes; 1 copies them",
    )
    reward_scale: float = Field(
        default=1.0,
        gt=0.0,
        le=_MOST_COST,
        description="factor of the rewards, so that the values to learn are not far above 1",
    )
    buffer_unrolls: Whole = Field(
        default=4,
        ge=1,
        le=1024,
        description="newest unrolls of each environment that every update learns from",
    )
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


class UsersLossConfig(LossConfig):
    """A user's own loss, which validates the further keys when its module is loaded."""

    model_config = ConfigDict(extra="allow")


LOSSES: dict[str, type[LossConfig]] = {
    "actor_critic": ActorCriticConfig,
    "a2c": A2CConfig,
    "ppo": PPOConfig,
    "impact": IMPACTConfig,
    "ddpg": DDPGConfig,
}
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
    """GA3C's correction: the policy gradient of log(π + ε), or of log max(π, ε)."""

    epsilon: float = Field(
        default=1e-6,
        gt=0.0,
        le=1.0,
        description="ε, a probability of an action that is small",
    )
    form: Literal["add", "max"] = Field(
        default="add",
        description="add: log(π + ε), as in the paper; max: log max(π, ε), as in its code, without "
        "a gradient below ε",
    )


class KLFilterConfig(Group):
    """A filter of states; needs actors.behaviour_parameters."""

    bound: float = Field(
        gt=0.0,
        le=_MOST_COST,
        description="largest KL(π‖μ) of a state that is learned, in nats",
    )


class NStepConfig(Group):
    """n-step returns, as if the data were on-policy."""

    steps: Whole = Field(
        default=5, ge=1, le=65_536, description="n: rewards of a return before it bootstraps"
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
    "n_step": NStepConfig,
    **dict.fromkeys(Q_CORRECTORS, LambdaConfig),
}
"""The models of our correctors by their names."""


class CorrectorConfig(NamedArguments):
    """One corrector of the chain; in YAML `name` or `name: {arguments}`."""

    table = CORRECTORS


def default_correctors(loss: LossConfig) -> tuple[CorrectorConfig, ...]:
    """The list `correctors` of a configuration that has none."""
    return tuple(CorrectorConfig.model_validate(each) for each in loss.usual_correctors)
