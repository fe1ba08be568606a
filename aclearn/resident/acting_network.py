"""The rollout's own copy of a policy's network, in torch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from aclearn.policies import Architecture
from aclearn.policies.layer_network import LayerNetwork
from aclearn.resident.network import policy_layers


class ActingNetwork:
    """What the actions depend on of a policy, with weights that `refresh` writes.

    Args:
        dtype: that the weights are rounded to; they stay in float32.

    Attributes:
        network: the layers.
        state: `[rows, n]` of each part of the policy's state, before the next step.
        first_state: the same before the first recorded step.
    """

    def __init__(
        self, architecture: Architecture, rows: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        network = LayerNetwork(policy_layers(architecture), architecture.observation)
        self.network, self._dtype = network.to(device).requires_grad_(False), dtype
        self.state, self.first_state = (
            [torch.zeros(rows, n, device=device) for n in architecture.state] for _ in range(2)
        )
        self._weights = dict(self.network.named_parameters())
        normalisers = (layer for layer in network.layers if layer.is_normaliser)
        self._exact = {name for layer in normalisers for name in layer.tensor_names}

    def refresh(self, weights: Mapping[str, Tensor]) -> None:
        """Copy these weights, by name; others than the policy's are ignored."""
        for name, tensor in self._weights.items():
            # a rounded mean may be further from the observations than they are from each other
            exact = name in self._exact
            tensor.copy_(weights[name] if exact else weights[name].to(self._dtype))
