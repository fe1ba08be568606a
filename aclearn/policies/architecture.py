"""Architectures: the list of layers of a policy network, and its observations and actions.

A description is plain data, so an actor can build its runtime without torch, and two processes can
compare digests before they exchange weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from aclearn.distributions import distribution_of
from aclearn.policies.layers import Layer, Shape, needed_by, output_shapes, states, tensor_shapes
from aclearn.types import ActionSpec, ObservationSpec, flat_size

#: Names of the layers that give the distribution's parameters `[N, P]`, and the critic's values:
#: V `[N, 1]`, or Q `[N, A]` of discrete actions.
POLICY, VALUE, ACTION_VALUES = "policy", "value", "q"
#: Name of the layer that gives the policy's own action, between -1 and 1 `[N, n]`, to critics
#: Q(x, a): "value", and of a pair the second one.
ACTION, SECOND_VALUE = "action", "second_value"


@dataclass(frozen=True)
class Architecture:
    """The layers of a policy network.

    Attributes:
        layers: in order of execution; the first of each leaf scales it, "policy" gives the
            distribution's parameters, and "value" or "q", if there is one, is the critic.

    Raises:
        ValueError: a layer reads one that does not precede it, "policy" is missing, a head has
            another size, or there are two critics.
    """

    name: str
    observation: ObservationSpec
    action_spec: ActionSpec
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        shapes = output_shapes(self.layers, self.observation)
        if VALUE in shapes and ACTION_VALUES in shapes:
            raise ValueError(
                f"architecture {self.name!r}: expected one critic, a layer {VALUE!r} or "
                f"{ACTION_VALUES!r}, got both"
            )
        sizes = {POLICY: self.parameter_count, ACTION_VALUES: self.parameter_count, VALUE: 1}
        for head, units in sizes.items():
            if shapes.get(head, () if head == POLICY else (units,)) != (units,):
                raise ValueError(
                    f"architecture {self.name!r}: expected a layer {head!r} with {units} outputs, "
                    f"got {shapes.get(head)}"
                )

    @property
    def state(self) -> tuple[int, ...]:
        """Numbers of each part of the policy's state, `[B, n]` each; `()` without memory."""
        return tuple(layer.units for layer in states(self.layers))

    def tensor_shapes(self) -> dict[str, Shape]:
        """Every weight's name and shape, in the order of messages."""
        return tensor_shapes(self.layers, self.observation)

    @property
    def parameter_count(self) -> int:
        """P, the numbers of the distribution of actions."""
        return distribution_of(self.action_spec).parameter_count

    @property
    def std_from_observations(self) -> bool:
        """Whether the standard deviations of Box actions depend on the observations."""
        return not any(layer.kind == "log_std" for layer in self.layers)

    @property
    def critic(self) -> Literal["v", "q"] | None:
        """Whether the critic gives state values or action values, as `policy.critic`."""
        names = {layer.name for layer in self.layers}
        return "q" if ACTION_VALUES in names else "v" if VALUE in names else None

    @property
    def values_actions(self) -> bool:
        """Whether the value is a critic Q(x, a) of the policy's own action."""
        return any(layer.name == ACTION for layer in self.layers)

    @property
    def has_pair(self) -> bool:
        """Whether there are two critics Q(x, a)."""
        return any(layer.name == SECOND_VALUE for layer in self.layers)

    def acting(self) -> Architecture:
        """The part that actors get: without critics Q(x, a), which only the trainer reads."""
        if not self.values_actions:
            return self
        return replace(self, layers=needed_by(self.layers, POLICY))

    @property
    def normalises_observations(self) -> bool:
        """Whether it normalises observations, as `policy.normalise_observations`."""
        return any(layer.kind == "normalise" for layer in self.layers)

    @property
    def normalises_returns(self) -> bool:
        """Whether the critic learns normalised returns, as `loss.normalise_returns`."""
        return any(layer.kind == "denormalise" for layer in self.layers)

    @property
    def spaces(self) -> str:
        """Observations and actions, as text."""
        return f"{self.observation} → {self.action_spec}"

    @property
    def convolves(self) -> bool:
        """Whether it has convolutions, in a network of the user's own by their weights' shapes."""
        return any(len(shape) == 4 for shape in self.tensor_shapes().values())

    @property
    def parameters(self) -> int:
        """Number of trainable numbers."""
        return flat_size(self.tensor_shapes())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able data; `from_dict` is its inverse."""
        return {
            "name": self.name,
            "observation": self.observation.to_dict(),
            "action_spec": self.action_spec.to_dict(),
            "layers": [layer.to_dict() for layer in self.layers],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Architecture:
        """The architecture that `to_dict` described.

        Raises:
            ValueError, TypeError, KeyError: the data is invalid.
        """
        layers = tuple(Layer.from_dict(layer) for layer in data["layers"])
        parts = {
            "observation": ObservationSpec.from_dict(data["observation"]),
            "action_spec": ActionSpec.from_dict(data["action_spec"]),
            "layers": layers,
        }
        return cls(**{**data, **parts})

    def digest(self) -> str:
        """16 hexadecimal digits; they depend on everything except the name."""
        return _digest_of(self)


def identity(data: dict[str, Any]) -> dict[str, Any]:
    """What tells two architectures apart, from `Architecture.to_dict`, whose result is changed."""
    del data["name"]
    for layer in data["layers"]:
        if "module" in layer:
            del layer["module"]["onnx"]  # torch's versions differ in it
    return data


@lru_cache(maxsize=64)  # used for every artifact, at both ends
def _digest_of(architecture: Architecture) -> str:
    text = json.dumps(identity(architecture.to_dict()), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
