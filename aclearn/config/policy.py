"""The configuration of the policy's network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, Strict, field_validator

from aclearn.config._fields import Group, Whole
from aclearn.types import ACTIVATIONS, ARCHITECTURES, refuse_recurrence

if TYPE_CHECKING:
    Architecture = str
    Activation = str
else:
    Architecture = Literal[tuple(ARCHITECTURES)]
    Activation = Literal[ACTIVATIONS]


class PolicyConfig(Group):
    """The network."""

    architecture: Architecture = Field(
        default="nature",
        description="network: mlp for flat observations, the others for images (docs/networks.md)",
    )
    hidden: (
        Annotated[tuple[Annotated[Whole, Field(ge=1, le=65_536)], ...], Strict(False)] | None
    ) = Field(
        default=None,
        description="widths of the hidden layers, in units; null: the architecture's own",
    )
    activation: Activation | None = Field(
        default=None,
        description="function after convolutions and hidden layers; null: the architecture's own",
    )
    separate_value: bool | None = Field(
        default=None,
        description="the critic has hidden layers of its own; null: as the architecture, which "
        "for mlp is true. Convolutions are shared in any case",
    )
    normalise_observations: bool = Field(
        default=False,
        description="flat observations of floats are normalised by their running mean and standard "
        "deviation and bounded by ± 10; for numbers of different sizes",
    )
    std_from_observations: bool = Field(
        default=False,
        description="Box actions: the network gives their standard deviations; without it they are "
        "weights that no observation changes",
    )

    critic: Literal["v", "q"] = Field(
        default="v",
        description="second head of the network: v, the value of a state, or q, the values of all "
        "its actions, which retrace and tree_backup correct (discrete actions only)",
    )

    @field_validator("architecture", mode="before")
    @classmethod
    def _has_no_state(cls, name: Any) -> Any:
        refusal = refuse_recurrence(name) if isinstance(name, str) else None
        if refusal is not None:
            raise ValueError(refusal)
        return name
