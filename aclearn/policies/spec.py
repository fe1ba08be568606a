"""Architectures: small descriptions from which a network, an ONNX graph or a digest is made.

A description is plain data, so an actor can build its runtime without torch and two processes
can compare digests before they exchange weights.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from aclearn.errors import ConfigError


@dataclass(frozen=True)
class Convolution:
    """A square convolution without padding, followed by the architecture's activation."""

    filters: int
    kernel: int
    stride: int


@dataclass(frozen=True)
class Architecture:
    """What a policy network is made of: convolutions, hidden layers, a policy and a value head.

    Attributes:
        name: the preset it came from.
        observation_shape: `(C, H, W)` for images, `(D,)` for flat observations.
        observation_dtype: "uint8" (divided by 255 inside the network) or "float32".
        actions: A, the number of discrete actions.
        convolutions: applied in order; empty for flat observations.
        hidden: widths of the fully connected layers between the (flattened) input and the heads.
        activation: "relu" or "tanh", after every convolution and hidden layer.
        separate_value: the value head has hidden layers of its own (flat observations only).
    """

    name: str
    observation_shape: tuple[int, ...]
    observation_dtype: str
    actions: int
    convolutions: tuple[Convolution, ...]
    hidden: tuple[int, ...]
    activation: str = "relu"
    separate_value: bool = False

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every weight's name and shape, in the order in which they travel."""
        shapes: dict[str, tuple[int, ...]] = {}
        channels, *_ = self.observation_shape
        for i, conv in enumerate(self.convolutions):
            shapes[f"convolutions.{i}.weight"] = (conv.filters, channels, conv.kernel, conv.kernel)
            shapes[f"convolutions.{i}.bias"] = (conv.filters,)
            channels = conv.filters
        towers = ["hidden", "value_hidden"] if self.separate_value else ["hidden"]
        for tower in towers:
            width = self.flat_size
            for i, hidden in enumerate(self.hidden):
                shapes[f"{tower}.{i}.weight"] = (hidden, width)
                shapes[f"{tower}.{i}.bias"] = (hidden,)
                width = hidden
        width = self.hidden[-1] if self.hidden else self.flat_size
        shapes["policy.weight"], shapes["policy.bias"] = (self.actions, width), (self.actions,)
        shapes["value.weight"], shapes["value.bias"] = (1, width), (1,)
        return shapes

    @property
    def flat_size(self) -> int:
        """Numbers that enter the first hidden layer."""
        if not self.convolutions:
            return prod(self.observation_shape)
        _, height, width = self.observation_shape
        for conv in self.convolutions:
            height = (height - conv.kernel) // conv.stride + 1
            width = (width - conv.kernel) // conv.stride + 1
        return self.convolutions[-1].filters * height * width

    @property
    def parameters(self) -> int:
        """Trainable numbers."""
        return sum(prod(shape) for shape in self.tensor_shapes().values())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able data; `from_dict` is its inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Architecture:
        """The architecture that `to_dict` described."""
        convolutions = tuple(Convolution(**conv) for conv in data["convolutions"])
        shape, hidden = tuple(data["observation_shape"]), tuple(data["hidden"])
        return cls(
            **{
                **data,
                "convolutions": convolutions,
                "observation_shape": shape,
                "hidden": hidden,
            }
        )

    def digest(self) -> str:
        """16 hexadecimal digits that differ when anything but the name differs."""
        data = {key: value for key, value in self.to_dict().items() if key != "name"}
        text = json.dumps(data, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _convolutions(*layers: tuple[int, int, int]) -> tuple[Convolution, ...]:
    return tuple(Convolution(*layer) for layer in layers)


# nature: Mnih et al. 2015. accerl-*: AcceRL Table 6, which prints filters, kernels and the fully
# connected width; the strides (4, 2, 1) are those of the Nature network that it starts from.
_IMAGE_PRESETS: dict[str, tuple[tuple[Convolution, ...], tuple[int, ...]]] = {
    "nature": (_convolutions((32, 8, 4), (64, 4, 2), (64, 3, 1)), (512,)),
    "accerl-original": (_convolutions((32, 8, 4), (64, 4, 2), (64, 3, 1)), (2048,)),
    "accerl-net1": (_convolutions((16, 8, 4), (32, 4, 2)), (256,)),
    "accerl-net2": (_convolutions((8, 8, 4), (16, 4, 2)), (128,)),
    "accerl-net3": (_convolutions((4, 8, 4), (4, 4, 2)), (32,)),
}
ARCHITECTURES = (*_IMAGE_PRESETS, "mlp")


def describe_architecture(
    name: str,
    *,
    observation_shape: tuple[int, ...],
    observation_dtype: str,
    actions: int,
    hidden: tuple[int, ...] | None = None,
) -> Architecture:
    """The preset `name` for these observations and actions.

    Args:
        name: one of `ARCHITECTURES`.
        observation_shape: `(C, H, W)` or `(D,)`.
        observation_dtype: "uint8" or "float32".
        actions: A.
        hidden: replaces the preset's hidden widths.

    Raises:
        ConfigError: the preset does not exist or does not fit the observations.
    """
    if name not in ARCHITECTURES:
        raise ConfigError(
            f"policy.architecture: {name!r} is unknown; expected one of {', '.join(ARCHITECTURES)}"
        )
    if name == "mlp":
        return Architecture(
            name,
            observation_shape,
            observation_dtype,
            actions,
            (),
            (64, 64) if hidden is None else tuple(hidden),
            activation="tanh",
            separate_value=True,
        )
    if len(observation_shape) != 3:
        raise ConfigError(
            f"policy.architecture: {name!r} needs images (C, H, W), but the environment's "
            f"observations have shape {observation_shape}; use policy.architecture: mlp"
        )
    convolutions, preset_hidden = _IMAGE_PRESETS[name]
    _, height, width = observation_shape
    for conv in convolutions:
        if min(height, width) < conv.kernel:
            raise ConfigError(
                f"policy.architecture: {name!r} cannot see images of shape {observation_shape}: "
                f"a {conv.kernel}×{conv.kernel} convolution would meet {height}×{width} pixels; "
                "use larger images (84×84 is usual) or policy.architecture: mlp"
            )
        height = (height - conv.kernel) // conv.stride + 1
        width = (width - conv.kernel) // conv.stride + 1
    return Architecture(
        name,
        observation_shape,
        observation_dtype,
        actions,
        convolutions,
        preset_hidden if hidden is None else tuple(hidden),
    )
