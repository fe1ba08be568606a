"""The torch module of an architecture."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aclearn.policies.spec import Architecture


class PolicyNetwork(nn.Module):
    """A policy and a value function over one body, as an `Architecture` describes them.

    Its parameters bear the names of `Architecture.tensor_shapes`. Weights start orthogonal
    (gain √2 in the body, 0.01 at the policy so that the first policy is near uniform, 1 at the
    value), biases at zero.
    """

    def __init__(self, architecture: Architecture, *, seed: int | None = None) -> None:
        super().__init__()
        self.architecture = architecture
        channels = architecture.observation_shape[0]
        self.convolutions = nn.ModuleList()
        for conv in architecture.convolutions:
            self.convolutions.append(nn.Conv2d(channels, conv.filters, conv.kernel, conv.stride))
            channels = conv.filters
        self.hidden = _tower(architecture)
        self.value_hidden = _tower(architecture) if architecture.separate_value else None
        width = architecture.hidden[-1] if architecture.hidden else architecture.flat_size
        self.policy = nn.Linear(width, architecture.actions)
        self.value = nn.Linear(width, 1)
        self._activation = torch.relu if architecture.activation == "relu" else torch.tanh
        self._scale = 1.0 / 255.0 if architecture.observation_dtype == "uint8" else None
        self._initialise(seed)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `[N, A]` and values `[N]` of observations `[N, *shape]`."""
        x = observations
        if self._scale is not None:
            x = x.float().mul_(self._scale)
        for convolution in self.convolutions:
            x = self._activation(convolution(x))
        body = x = x.flatten(1)
        for layer in self.hidden:
            x = self._activation(layer(x))
        v = x
        if self.value_hidden is not None:
            v = body
            for layer in self.value_hidden:
                v = self._activation(layer(v))
        return self.policy(x), self.value(v).squeeze(1)

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
            gain = {"policy": 0.01, "value": 1.0}.get(name.split(".")[0], 2**0.5)
            nn.init.orthogonal_(parameter, gain, generator=generator)


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
