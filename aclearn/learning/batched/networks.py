"""A network whose weights are arguments: those of one member, under `torch.func.vmap`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from aclearn.learning.networks import Networks
from aclearn.types import PolicyOutput


class _Method(nn.Module):
    """Calls a method of a network, since `functional_call` only calls `forward`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, name: str, *arguments: Any) -> Any:
        return getattr(self.network, name)(*arguments)


class _Bound:
    """The methods of a network with other weights than its own."""

    def __init__(self, method: _Method, weights: Mapping[str, Tensor]) -> None:
        self._method = method
        self._weights = {f"network.{name}": weight for name, weight in weights.items()}

    def step(self, *arguments: Any) -> PolicyOutput[Tensor]:
        """As `PolicyNetwork.step`."""
        found: PolicyOutput[Tensor] = self._call("step", *arguments)
        return found

    def unroll(self, *arguments: Any) -> PolicyOutput[Tensor]:
        """As `PolicyNetwork.unroll`."""
        found: PolicyOutput[Tensor] = self._call("unroll", *arguments)
        return found

    def _call(self, *arguments: Any) -> Any:
        return functional_call(self._method, self._weights, arguments)


class NetworksOfMember:
    """Makes `Networks` that compute with given weights.

    Args:
        networks: their architecture and number format; its own weights are not read.
    """

    def __init__(self, networks: Networks) -> None:
        self._networks, self._method = networks, _Method(networks.network)
        layers = networks.network.layers
        self._critic = next((each.name for each in layers if each.kind == "denormalise"), None)

    def __call__(
        self, weights: Mapping[str, Tensor], advantage_scale: float | Tensor = 1.0
    ) -> Networks:
        """The networks of these weights, by name."""
        made: Any = copy.copy(self._networks)
        made.network = _Bound(self._method, weights)
        made.advantage_scale = advantage_scale
        if self._critic is not None:
            made.target_moments = tuple(weights[f"{self._critic}.{n}"] for n in ("mean", "std"))
        return made  # type: ignore[no-any-return]
