"""The torch module of an architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aclearn.policies.architecture import Architecture, ResidualSection

_Activation = Callable[[Tensor], Tensor]


class PolicyNetwork(nn.Module):
    """A policy and a value function over one body, as an `Architecture` describes them.

    Its parameters bear the names of `Architecture.tensor_shapes`. Weights start orthogonal
    (gain √2 in the body, 0.01 at the policy so that the first policy is near uniform, 1 at the
    value), biases at zero. In residual sections the gain is 1 where no activation comes before,
    and √(2 / blocks) where a block of all of these ends: their sums then stay of one size, and
    the deep network starts with values as small as those of the others.
    """

    def __init__(self, architecture: Architecture, *, seed: int | None = None) -> None:
        super().__init__()
        self.architecture = architecture
        channels = architecture.observation_shape[0]
        self.convolutions = nn.ModuleList()
        for conv in architecture.convolutions:
            self.convolutions.append(nn.Conv2d(channels, conv.filters, conv.kernel, conv.stride))
            channels = conv.filters
        self.sections = nn.ModuleList()
        for section in architecture.sections:
            self.sections.append(_Section(channels, section))
            channels = section.filters
        self.hidden = _tower(architecture)
        self.value_hidden = _tower(architecture) if architecture.separate_value else None
        width = architecture.hidden[-1] if architecture.hidden else architecture.flat_size
        self.policy = nn.Linear(width, architecture.actions)
        self.value = nn.Linear(width, 1)
        relu = architecture.activation == "relu"
        self._activation: _Activation = torch.relu if relu else torch.tanh
        self._scale = 1.0 / 255.0 if architecture.observation_dtype == "uint8" else None
        self._initialise(seed)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `[N, A]`, values `[N]` of observations `[N, *shape]`; fp32 under autocast too."""
        x = observations
        if self._scale is not None:
            x = x.float().mul_(self._scale)
        for convolution in self.convolutions:
            x = self._activation(convolution(x))
        for section in self.sections:
            x = section(x, self._activation)
        if self.sections:
            x = self._activation(x)
        body = x = x.flatten(1)
        for layer in self.hidden:
            x = self._activation(layer(x))
        v = x
        if self.value_hidden is not None:
            v = body
            for layer in self.value_hidden:
                v = self._activation(layer(v))
        device = x.device.type
        if not torch.is_autocast_enabled(device):
            return self.policy(x), self.value(v).squeeze(1)
        # the heads stay in fp32: they are no work, and bf16 knows no value between 100 and 100.5
        with torch.autocast(device, enabled=False):
            return self.policy(x.float()), self.value(v.float()).squeeze(1)

    def _initialise(self, seed: int | None) -> None:
        generator = torch.Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                nn.init.zeros_(parameter)
                continue
            nn.init.orthogonal_(parameter, self._gain(name), generator=generator)

    def _gain(self, name: str) -> float:
        """Of the weight `name` when it starts."""
        layer = name.split(".")[-2]  # the last but "weight"
        blocks = sum(len(section.blocks) for section in self.architecture.sections)
        if layer == "second":
            return float((2 / blocks) ** 0.5)
        return {"policy": 0.01, "value": 1.0, "convolution": 1.0}.get(layer, 2**0.5)


class _Block(nn.Module):
    def __init__(self, filters: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(filters, width, 3, padding=1)
        self.second = nn.Conv2d(width, filters, 3, padding=1)

    def forward(self, x: Tensor, activation: _Activation) -> Tensor:
        return x + self.second(activation(self.first(activation(x))))  # type: ignore[no-any-return]


class _Section(nn.Module):
    def __init__(self, channels: int, section: ResidualSection) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, section.filters, 3, padding=1)
        self.blocks = nn.ModuleList(_Block(section.filters, width) for width in section.blocks)

    def forward(self, x: Tensor, activation: _Activation) -> Tensor:
        x = nn.functional.max_pool2d(self.convolution(x), 3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x, activation)
        return x


def _tower(architecture: Architecture) -> nn.ModuleList:
    widths = (architecture.flat_size, *architecture.hidden)
    return nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))


def tensors_of(network: nn.Module) -> dict[str, NDArray[np.float32]]:
    """A copy of every weight as a contiguous float32 array, consistent if nobody writes now."""
    return {
        # contiguous: channels-last convolutions must travel in the plain order
        name: parameter.detach().to("cpu", torch.float32).contiguous().numpy().copy()
        for name, parameter in network.named_parameters()
    }


def load_tensors(network: nn.Module, tensors: Mapping[str, NDArray[np.float32]]) -> None:
    """Write `tensors` into the network.

    Raises:
        ValueError: a name is missing or unknown, or a shape differs.
    """
    parameters = dict(network.named_parameters())
    if set(parameters) != set(tensors):
        raise ValueError(f"tensors: expected {sorted(parameters)}, got {sorted(tensors)}")
    for name, parameter in parameters.items():
        if tuple(parameter.shape) != tuple(tensors[name].shape):
            raise ValueError(
                f"tensors[{name!r}]: expected shape {tuple(parameter.shape)}, "
                f"got {tuple(tensors[name].shape)}"
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.array(tensors[name], dtype=np.float32)))
