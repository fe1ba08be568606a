"""The list `correctors`: the models of their arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field
from typing_extensions import override

from aclearn.config._fields import Group, Whole
from aclearn.config._named import Named, NamedArguments

#: Largest bound of a ratio: beyond it float32 overflows.
MAX_BAR = 3e38


def _bar(value: Any) -> Any:
    return None if value == math.inf else value


#: Upper bound of an importance ratio; null, also written .inf, means none.
Bar = Annotated[
    float | None,
    Field(gt=0.0, le=MAX_BAR),
    BeforeValidator(_bar, json_schema_input_type=Annotated[float, Field(gt=0.0)] | None),
]


def _lambda(default: float = 1.0) -> Any:
    return Field(
        default=default,
        ge=0.0,
        le=1.0,
        alias="lambda",  # a keyword of Python
        description="how far errors are carried back: 1 over the whole unroll, 0 one step",
    )


class PartConfig(Group):
    """A corrector of a ratio, or of one of its two parts."""

    part: Literal["ratio", "gap", "drift"] = Field(
        default="ratio",
        description="ratio: π/μ, the whole; gap: the uncompressed policy that the actors' was made "
        "of over μ; drift: π over that policy",
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if self.part != "ratio" and not config.acts_compressed:
            place, name = _entry(self, config)
            yield (
                f"correctors[{place}].{name}.part: without a compressed policy the whole ratio is "
                "drift; set it to ratio, or compressor.chain to [int8, onnx] or another one"
            )


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


class ImportanceSamplingConfig(PartConfig):
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
        le=1e6,
        description="largest KL(π‖μ) of a state that is learned, in nats",
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        place, name = _entry(self, config)
        if config.resident.envs is not None:
            yield (
                f"correctors[{place}] {name}: resident environments do not keep the parameters "
                "that actions were sampled from; remove it"
            )
        elif not config.actors.behaviour_parameters:
            yield (
                f"actors.behaviour_parameters: {name}, which correctors lists, "
                "compares π with the parameters that actions were sampled from; set this to true"
            )


class RatioMaskConfig(PartConfig):
    """IcePop: steps whose ratio is out of range have no part in the policy gradient."""

    low: float = Field(default=0.5, ge=0.0, lt=1.0, description="least ratio of a step")
    high: Bar = Field(
        default=2.0,
        gt=1.0,
        description="largest ratio of a step; null: no bound",
    )


class TVMaskConfig(Group):
    """DPPO: steps whose probability has moved too far, and would move further."""

    bound: float = Field(
        default=0.2,
        gt=0.0,
        le=1.0,
        description="largest |π(a) − μ(a)| of a step that would widen it; not with Box actions, "
        "which have no probabilities",
    )


class UnrollMaskConfig(PartConfig):
    """Unrolls whose ratios' geometric mean is out of range are dropped."""

    low: float = Field(
        default=0.99, ge=0.0, lt=1.0, description="least geometric mean of an unroll's ratios"
    )
    high: Bar = Field(
        default=1.01,
        gt=1.0,
        description="largest geometric mean of an unroll's ratios; null: no bound",
    )


class SecondMomentConfig(PartConfig):
    """M2PO: the largest ratios are masked until the second moment is small."""

    bound: float = Field(
        default=0.04,
        gt=0.0,
        le=400.0,
        description="largest mean of (log ρ)² over the steps of an update that stay",
    )


class ScaleByESSConfig(Group):
    """VCPO: the effective sample share scales the learning rate."""

    exponent: float = Field(
        default=0.5, gt=0.0, le=10.0, description="power of the share; 0.5: its square root"
    )


class AdaptiveConfig(ImportanceSamplingConfig):
    """Importance weights as strong as the measured mismatch asks for (after AIS)."""


class NStepConfig(Group):
    """n-step returns, as if the data were on-policy."""

    steps: Whole = Field(
        default=5, ge=1, le=65_536, description="n: rewards of a return before it bootstraps"
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        learned = config.loss.learned_together(config)
        # of a replay `replay.n_steps` is the length
        if self.steps > learned and config.loss.source != "replay":
            yield (
                f"correctors[{_entry(self, config)[0]}].n_step.steps: no return has {self.steps} "
                f"steps where {learned} are learned together (actors.unroll_length); set it to "
                f"{learned} or less, or that to more"
            )

    @override
    def doubts(self, config: Any) -> Iterator[str]:
        if config.loss.source == "replay" and any(self.changed("steps")):
            yield (
                f"correctors[{_entry(self, config)[0]}].n_step.steps: of a replay memory "
                f"replay.n_steps is the length; set that to {self.steps}, and remove this"
            )


class LambdaConfig(Group):
    """A corrector whose one argument is λ."""

    lambda_: float = _lambda()


class AutoConfig(Group):
    """V-trace, weights and masks, each as far as the measured mismatch asks for."""

    lambda_: float = _lambda(0.95)

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if len(config.correctors) > 1:
            yield (
                "correctors: auto chooses among correctors by itself; set it to auto alone, or "
                "remove auto from the list"
            )


class ActionValueConfig(LambdaConfig):
    """A corrector of action values."""

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if config.policy.critic != "q":
            yield (
                f"policy.critic: {_entry(self, config)[1]}, which correctors lists, corrects the "
                "values of actions; set this to q"
            )


class OurCorrector(NamedTuple):
    """A corrector of aclearn: its class by address, which imports torch, and its model."""

    address: str
    model: type[Group]


CORRECTORS = {
    "vtrace": OurCorrector("correctors:VTrace", VTraceConfig),
    "importance_sampling": OurCorrector("correctors:ImportanceSampling", ImportanceSamplingConfig),
    "epsilon_correction": OurCorrector("correctors:EpsilonCorrection", EpsilonCorrectionConfig),
    "kl_filter": OurCorrector("correctors:KLFilter", KLFilterConfig),
    "ratio_mask": OurCorrector("correctors:RatioMask", RatioMaskConfig),
    "tv_mask": OurCorrector("correctors:TVMask", TVMaskConfig),
    "unroll_mask": OurCorrector("correctors:UnrollMask", UnrollMaskConfig),
    "second_moment": OurCorrector("correctors:SecondMoment", SecondMomentConfig),
    "scale_by_ess": OurCorrector("correctors:ScaleByESS", ScaleByESSConfig),
    "adaptive": OurCorrector("correctors:Adaptive", AdaptiveConfig),
    "auto": OurCorrector("correctors:Auto", AutoConfig),
    "no_correction": OurCorrector("correctors:NoCorrection", LambdaConfig),
    "n_step": OurCorrector("correctors:NStep", NStepConfig),
    "retrace": OurCorrector("correctors:Retrace", ActionValueConfig),
    "tree_backup": OurCorrector("correctors:TreeBackup", ActionValueConfig),
    "q_lambda": OurCorrector("correctors:QLambda", ActionValueConfig),
    "q_importance_sampling": OurCorrector("correctors:QImportanceSampling", ActionValueConfig),
}
"""Our correctors by their names."""


class CorrectorConfig(NamedArguments):
    """One corrector of the chain; in YAML `name` or `name: {arguments}`."""

    table = Named("aclearn.config.correctors:CORRECTORS")

    @override
    @classmethod
    def model_of(cls, name: str) -> type[Group] | None:
        return CORRECTORS[name].model if name in CORRECTORS else None

    @property
    def address(self) -> str:
        """`module:Name` of the class."""
        return CORRECTORS[self.name].address if self.name in CORRECTORS else self.name


def listed(value: Any) -> Any:
    """The list `correctors`; `auto`, which stands alone, may be written without one."""
    return [value] if value == "auto" else value


def _entry(arguments: Group, config: Any) -> tuple[int, str]:
    """Place in `config.correctors` and name of the corrector that has these arguments."""
    return next(
        (place, corrector.name)
        for place, corrector in enumerate(config.correctors)
        if corrector.arguments is arguments
    )
