"""The group `loss`: what all algorithms have, and which model the named one has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, SerializeAsAny

from aclearn.config._fields import Group
from aclearn.config._named import Named
from aclearn.config.correctors import CorrectorConfig

ALGORITHMS = Named("aclearn.algorithms:ALGORITHMS")
"""Our algorithms by `loss.kind`."""


LossKind = Annotated[
    str,
    ALGORITHMS,
    Field(description="algorithm; the other keys of this section are its own (docs/algorithms.md)"),
]
"""The key `loss.kind` of an algorithm's model."""


class LossConfig(Group):
    """Keys of all algorithms, and what processes without torch must know of one.

    A subclass is the model of one algorithm's keys.

    Attributes:
        usual_correctors: the list `correctors` of a configuration without one.
        usual: defaults of keys of other sections, where they differ from these sections' own;
            dotted key → value.
        critic: "action", one Q(x, a) beside the policy, "actions", two of them, or "q_values", the
            policy's parameters being the values of actions; None: what `policy.critic` says.
        acting: whether actors sample, act at random with probability ε, or add noise.
        source: whether batches are new steps, the newest steps, or drawn from a replay memory.
    """

    usual_correctors: ClassVar[tuple[Any, ...]] = ("vtrace", "importance_sampling")
    usual: ClassVar[Mapping[str, Any]] = {}
    critic: ClassVar[Literal["action", "actions", "q_values"] | None] = None
    acting: ClassVar[Literal["sample", "epsilon", "noise"]] = "sample"
    source: ClassVar[Literal["stream", "fifo", "replay"]] = "stream"

    kind: LossKind = "actor_critic"
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
        model: Any = ALGORITHMS.model(str(kind))
        return model or UsersLossConfig

    @classmethod
    def usual_of(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """`usual` of a section with these keys."""
        return cls.usual

    @classmethod
    def source_of(cls, data: Mapping[str, Any]) -> str:
        """`source` of a section with these keys."""
        return cls.source

    def learned_together(self, config: Any) -> int:
        """Consecutive steps of an environment that an update's returns can reach over."""
        return int(config.actors.unroll_length)


def _loss_of_its_kind(data: Any) -> Any:
    return data if isinstance(data, LossConfig) else LossConfig.model_for(data).model_validate(data)


class UsersLossConfig(LossConfig):
    """A user's own loss, which validates the further keys when its module is loaded."""

    model_config = ConfigDict(extra="allow")


AnyLoss = Annotated[SerializeAsAny[LossConfig], BeforeValidator(_loss_of_its_kind)]
"""The section `loss`: a `LossConfig` of the kind that it names."""


def default_correctors(loss: LossConfig) -> tuple[CorrectorConfig, ...]:
    """The list `correctors` of a configuration that has none."""
    return tuple(CorrectorConfig.model_validate(each) for each in loss.usual_correctors)
