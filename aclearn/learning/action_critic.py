"""The critic Q(x, a) of actions that are numbers: a part of a policy's network."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.func import functional_call

from aclearn.policies import Architecture
from aclearn.policies.architecture import ACTION, VALUE
from aclearn.policies.layers import needed_by
from aclearn.policies.network import LayerNetwork, PolicyNetwork
from aclearn.types import LeafSpec, ObservationSpec


class ActionCritic:
    """Q(x, a) of a network whose value is Q(x, μ(x)), by the same weights.

    Args:
        network: of an architecture with a layer "action".
    """

    def __init__(self, network: PolicyNetwork) -> None:
        self._critic = _Critic(network.architecture)
        weights: dict[str, Tensor] = dict(network.named_parameters())
        self._weights = {name: weights[name] for name, _ in self._critic.named_parameters()}

    def __call__(
        self, observations: Mapping[str, Tensor], actions: Tensor, *, fixed: bool = False
    ) -> Tensor:
        """Q `[…]` float32 of observations `[…, *shape]` and actions `[…, n]`.

        Args:
            observations: by leaf.
            actions: between -1 and 1.
            fixed: the gradient reaches the actions, not the critic's weights.
        """
        weights = self._weights
        if fixed:
            weights = {name: weight.detach() for name, weight in weights.items()}
        ahead = actions.ndim - 1
        leaves = [leaf.flatten(0, ahead - 1) for leaf in (*observations.values(), actions)]
        values: Tensor = functional_call(self._critic, weights, tuple(leaves))
        return values.view(actions.shape[:ahead])


class _Critic(LayerNetwork):
    def __init__(self, architecture: Architecture) -> None:
        layers = [layer for layer in architecture.layers if layer.name != ACTION]
        count = architecture.action_spec.numbers
        action = LeafSpec((count,), "float32")
        leaves = ObservationSpec({**architecture.observation, ACTION: action})
        super().__init__(needed_by(layers, VALUE), leaves)

    def forward(self, *leaves: Tensor) -> Tensor:
        return self.outputs(*leaves)[VALUE].squeeze(1).float()
