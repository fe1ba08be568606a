"""Architectures: small descriptions from which a network, an ONNX graph or a digest is made.

A description is plain data, so an actor can build its runtime without torch and two processes
can compare digests before they exchange weights.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import prod
from typing import Any

from aclearn.types import ActionSpec, flat_size


@dataclass(frozen=True)
class Convolution:
    """A square convolution without padding, followed by the architecture's activation.

    Attributes:
        filters: output channels.
        kernel: height and width, in pixels of what it reads.
        stride: in the same pixels.
    """

    filters: int
    kernel: int
    stride: int


@dataclass(frozen=True)
class ResidualSection:
    """A part of IMPALA's deep network (Espeholt et al. 2018, figure 3): halves the image.

    A 3 × 3 convolution, a 3 × 3 max-pool of stride 2, then residual blocks: activation, 3 × 3
    convolution, activation, 3 × 3 convolution, and the block's input is added. Everything is padded
    by 1 and the convolutions have stride 1, so that only the max-pool changes the size, to half of
    it, rounded up. The activation after the last section is what the next layer reads.

    Attributes:
        filters: of the convolution and of each block's second one, which the sums tie together.
        blocks: filters of each block's first convolution.
    """

    filters: int
    blocks: tuple[int, ...]


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
        sections: residual ones, applied in order after the convolutions.
    """

    name: str
    observation_shape: tuple[int, ...]
    observation_dtype: str
    actions: int
    convolutions: tuple[Convolution, ...]
    hidden: tuple[int, ...]
    activation: str = "relu"
    separate_value: bool = False
    sections: tuple[ResidualSection, ...] = ()

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every weight's name and shape, in the order in which they travel."""
        shapes: dict[str, tuple[int, ...]] = {}
        channels, *_ = self.observation_shape
        for i, conv in enumerate(self.convolutions):
            shapes[f"convolutions.{i}.weight"] = (conv.filters, channels, conv.kernel, conv.kernel)
            shapes[f"convolutions.{i}.bias"] = (conv.filters,)
            channels = conv.filters
        for i, section in enumerate(self.sections):
            kernels = {"convolution": (section.filters, channels)}
            for j, width in enumerate(section.blocks):
                kernels[f"blocks.{j}.first"] = (width, section.filters)
                kernels[f"blocks.{j}.second"] = (section.filters, width)
            for name, (filters, read) in kernels.items():
                shapes[f"sections.{i}.{name}.weight"] = (filters, read, 3, 3)
                shapes[f"sections.{i}.{name}.bias"] = (filters,)
            channels = section.filters
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
    def action_spec(self) -> ActionSpec:
        """What the policy chooses."""
        return ActionSpec(self.actions)

    @property
    def convolves(self) -> bool:
        """Whether it has convolutions of any kind."""
        return bool(self.convolutions or self.sections)

    @property
    def flat_size(self) -> int:
        """Numbers that enter the first hidden layer."""
        if not self.convolves:
            return prod(self.observation_shape)
        filters, height, width = self.observation_shape
        for conv in self.convolutions:
            filters = conv.filters
            height = (height - conv.kernel) // conv.stride + 1
            width = (width - conv.kernel) // conv.stride + 1
        for section in self.sections:
            filters, height, width = section.filters, -(-height // 2), -(-width // 2)
        return filters * height * width

    @property
    def parameters(self) -> int:
        """Trainable numbers."""
        return flat_size(self.tensor_shapes())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able data; `from_dict` is its inverse.

        `sections` only where there are any: other architectures keep the digest that their
        checkpoints name.
        """
        data = asdict(self)
        if not self.sections:
            del data["sections"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Architecture:
        """The architecture that `to_dict` described."""
        convolutions = tuple(Convolution(**conv) for conv in data["convolutions"])
        sections = tuple(
            ResidualSection(**{**section, "blocks": tuple(section["blocks"])})
            for section in data.get("sections", ())
        )
        shape, hidden = tuple(data["observation_shape"]), tuple(data["hidden"])
        return cls(
            **{
                **data,
                "convolutions": convolutions,
                "observation_shape": shape,
                "hidden": hidden,
                "sections": sections,
            }
        )

    def digest(self) -> str:
        """16 hexadecimal digits that differ when anything but the name differs."""
        return _digest_of(self)


@lru_cache(maxsize=64)  # every artifact asks for it, at both ends
def _digest_of(architecture: Architecture) -> str:
    data = {key: value for key, value in architecture.to_dict().items() if key != "name"}
    text = json.dumps(data, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
