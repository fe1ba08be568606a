"""The configuration of the policy's network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict
from typing_extensions import override

from aclearn.config._fields import Group, Whole
from aclearn.config._named import Named
from aclearn.types import ACTIVATIONS, ARCHITECTURES, AUTO, MEMORIES, Memory

if TYPE_CHECKING:
    Activation = str
    MemoryKind = str
else:
    Activation = Literal[ACTIVATIONS]
    MemoryKind = Literal[MEMORIES]


class MemoryConfig(Group):
    """Cells behind the hidden layers, which keep a state from step to step."""

    kind: MemoryKind | None = Field(
        default=None, description="lstm or gru; null: the network keeps no state"
    )
    size: Whole = Field(default=128, ge=1, le=65_536, description="units of each cell")
    layers: Whole = Field(
        default=1, ge=1, le=16, description="cells, each of which reads the one before it"
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if self.kind is None:
            for key in self.changed("size", "layers"):
                yield (
                    f"policy.memory.{key}: there is no memory; set policy.memory.kind, or remove it"
                )
        else:
            yield from memory_contradictions(config, "policy.memory.kind")

    @property
    def memory(self) -> Memory | None:
        """The memory; None if there is none."""
        return None if self.kind is None else Memory(self.kind, self.size, self.layers)


def memory_contradictions(config: Any, key: str) -> Iterator[str]:
    """Why a policy with a memory cannot be trained so, in sentences that start with `key`."""
    loss = config.loss
    if loss.source != "stream" or loss.critic is not None:
        yield (
            f"{key}: {loss.kind} learns from single steps, and a memory from sequences; remove it, "
            "or set loss.kind to ppo or actor_critic"
        )
    if config.resident.chain:
        yield (
            f"{key}: the copy of resident.chain would need a state of its own; set resident.chain "
            "to []"
        )
    if config.trainer.compile:
        yield (f"{key}: the steps of a memory cannot be compiled; set trainer.compile to false")


def _memory_has_its_own_key(name: Any) -> Any:
    """Refuse the name of a recurrent architecture with the key that adds a memory."""
    found = re.search("lstm|gru|rnn|recurrent", name) if isinstance(name, str) else None
    if found is None or name in ARCHITECTURES or ":" in name:
        return name
    rest = name.replace(found[0], "").strip("-_+ ")
    named = next((n for n in ARCHITECTURES if rest and n.startswith(rest)), AUTO)
    kind = found[0] if found[0] in MEMORIES else MEMORIES[0]
    raise ValueError(
        f"{name!r} is unknown: a memory stands behind any architecture; set policy.memory.kind to "
        f"{kind}, and this to {named}"
    )


class PolicyConfig(Group):
    """The network."""

    architecture: Annotated[
        str,
        Named("aclearn.types:ARCHITECTURES", (AUTO,)),
        BeforeValidator(_memory_has_its_own_key),
    ] = Field(
        default=AUTO,
        description="network; auto: one that fits the observations, which config.yaml of the run "
        "names (docs/networks.md)",
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="keyword arguments of a network of yours"
    )
    hidden: (
        Annotated[tuple[Annotated[Whole, Field(ge=1, le=65_536)], ...], Strict(False)] | None
    ) = Field(
        default=None,
        description="widths of the hidden layers, in units; null: the architecture's own",
    )
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
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
        description="flat observations of numbers are normalised by their running mean and "
        "standard deviation and bounded by ± 10; for numbers of different sizes. Choices and "
        "switches (Discrete, MultiDiscrete, MultiBinary) stay 0 and 1",
    )
    std_from_observations: bool = Field(
        default=False,
        description="Box actions: the network gives their standard deviations; without it they are "
        "weights that no observation changes",
    )

    initial_std: float = Field(
        default=1.0,
        gt=0,
        le=100,
        description="Box actions: the first standard deviation, where an action's bounds are -1 "
        "and 1; learning changes it",
    )

    critic: Literal["v", "q"] = Field(
        default="v",
        description="second head of the network: v, the value of a state, or q, the values of all "
        "its actions, which retrace and tree_backup correct (discrete actions only)",
    )

    @property
    def is_users(self) -> bool:
        """Whether the network is a class of the user's own."""
        return ":" in self.architecture

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        yield from self.memory.contradictions(config)
        if config.env.is_atari:
            for key in self.changed("std_from_observations", "initial_std"):
                yield (
                    f"policy.{key}: {config.env.id} is played with discrete actions, which have no "
                    "standard deviations; remove it"
                )
        if self.std_from_observations and self.initial_std != 1.0:
            yield (
                "policy.initial_std: with policy.std_from_observations the network gives the "
                "deviations; remove one of them"
            )
        if not self.is_users:
            if self.arguments:
                yield (
                    f"policy.arguments: {self.architecture} is a network of aclearn; remove it, or "
                    "name a module:Class in policy.architecture"
                )
            return
        if self.memory.kind is not None:
            yield (
                f"policy.memory.kind: {self.architecture} is a network of yours, which keeps its "
                "own state; remove it, and return the state from step (docs/networks.md)"
            )
        for key in self.changed(
            "hidden", "activation", "separate_value", "std_from_observations", "initial_std"
        ):
            yield (
                f"policy.{key}: {self.architecture} is a network of yours, which this does not "
                "change; remove it, or give it in policy.arguments"
            )
