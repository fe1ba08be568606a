"""The first layer of a policy where environments share most of what they observe.

Thousands of accounts see the same few thousand bars of a market. What the first layer makes of a
bar is computed once for each set of weights; a step adds the part of the account.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aclearn.policies.layer_network import LayerNetwork
from aclearn.policies.layers import MOST_DEVIATIONS, Layer
from aclearn.resident.engine import ResidentEnvs
from aclearn.resident.resident import Resident
from aclearn.resident.warp_setup import wp


class SharedFirstLayer:
    """Computes a network from its first dense layer on.

    Args:
        network: the copy that acts, whose weights the caller changes.
        normaliser: the layer between the observations and `first`; None: there is none.
        first: the dense layer that reads the observations.
    """

    def __init__(
        self, network: LayerNetwork, envs: ResidentEnvs, normaliser: Layer | None, first: Layer
    ) -> None:
        shared = envs.env.shared
        assert shared is not None
        self._network, self._first = network, first.name
        self._weight = network.get_parameter(f"{first.name}.weight")
        self._bias = network.get_parameter(f"{first.name}.bias") if first.bias else None
        self._moments = None
        if normaliser is not None:
            names = (f"{normaliser.name}.{moment}" for moment in ("mean", "std"))
            self._moments = [network.get_parameter(name) for name in names]
        self._table: Tensor = wp.to_torch(shared.table(envs.params))
        self._rows = envs.data[shared.row]
        self._own = self._weight.shape[1] - self._table.shape[1]
        self._products = self._table.new_zeros(len(self._table), first.units)

    @classmethod
    def of(cls, network: LayerNetwork, envs: Resident) -> SharedFirstLayer | None:
        """None where it cannot help.

        Environments share nothing, the table is longer than a rollout, or the first layers are
        other ones.
        """
        if not isinstance(envs, ResidentEnvs) or len(network.leaves) != 1:
            return None
        shared, steps = envs.env.shared, len(envs.buffers.rewards)
        if shared is None:
            return None
        if shared.table(envs.params).shape[0] > envs.num_envs * steps:
            return None
        given, normaliser = network.leaves[0], None
        while True:
            readers = [layer for layer in network.layers if given in layer.reads]
            if len(readers) != 1:
                return None
            (layer,) = readers
            if layer.kind == "dense":
                return cls(network, envs, normaliser, layer)
            if layer.is_normaliser:
                normaliser = layer
            elif layer.kind != "flatten" and (layer.kind, layer.factor) != ("scale", 1.0):
                return None
            given = layer.name

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute the table's part again, after a change of weights."""
        shared = self._normalised(self._table, slice(self._own, None))
        torch.matmul(shared, self._weight[:, self._own :].T, out=self._products)

    def outputs(self, seen: Tensor, rows: slice, state: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """The network's outputs for the observations `[·, D]` of these environments, now."""
        own = self._normalised(seen[:, : self._own], slice(self._own))
        product = nn.functional.linear(own, self._weight[:, : self._own], self._bias)
        value = product + self._products[self._rows[rows].long()]
        return self._network.outputs_from(self._first, value, state=state)

    def _normalised(self, x: Tensor, columns: slice) -> Tensor:
        if self._moments is None:
            return x
        mean, std = (moment[columns] for moment in self._moments)
        return ((x - mean) / std).clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)
