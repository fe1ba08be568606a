"""The torch module of a policy graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aclearn.policies.architecture import VALUE
from aclearn.policies.layer_network import LayerNetwork
from aclearn.policies.network import load_tensors
from aclearn.policies.users_network import seeded
from aclearn.types import ObservationSpec
from compress.graphs.policy_graph import PolicyGraph, Tensors, stored_as_float32


class GraphNetwork(LayerNetwork):
    """A policy graph in torch; factored layers are two modules.

    Its parameters have the names of `PolicyGraph.tensors` and are uninitialised before `load`,
    since drawing random weights took longer than loading real ones.

    Raises:
        ValueError: an int8 graph, which only ONNX Runtime computes.
    """

    def __init__(self, graph: PolicyGraph, *, with_value: bool = True) -> None:
        if graph.precision == "int8":
            raise ValueError("graph: int8 computes in ONNX Runtime only")
        with torch.device("meta"), seeded(0):
            super().__init__(graph.layers(with_value=with_value), graph.architecture.observation)
        # networks of the user's own are made on the CPU: their constants are in no message
        self._apply(  # type: ignore[no-untyped-call]
            lambda tensor: torch.empty_like(tensor, device="cpu") if tensor.is_meta else tensor
        )
        self.graph = graph
        self._policy = graph.output

    def forward(self, *observations: Tensor) -> tuple[Tensor, Tensor | None]:
        """The distribution's parameters `[N, P]`, and values `[N]` where the network has them.

        Under autocast, too, both have the dtype of the stored weights. Each leaf is `[N, *shape]`.
        """
        given = self.outputs(*observations)
        return given[self._policy], given[VALUE].squeeze(1) if VALUE in given else None

    def load(self, tensors: Tensors) -> GraphNetwork:
        """Write stored tensors into the parameters; returns self.

        Raises:
            ValueError: names or shapes differ.
        """
        mine = {
            name: stored_as_float32(tensors[name])
            for name, _ in self.named_parameters()
            if name in tensors
        }
        load_tensors(self, mine)
        return self


class OneStep(nn.Module):
    """A graph as a function of tensors: each leaf and part of the state → a tuple.

    That is the parameters `[N, P]` and each part of the next state `[N, n]`.
    """

    def __init__(self, network: GraphNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """See the class."""
        network = self.network
        count = len(network.leaves)
        outputs = network.outputs(*given[:count], state=given[count:])
        return (outputs[network.graph.output], *(outputs[each.next] for each in network.states))


def example_leaves(observation: ObservationSpec) -> tuple[Tensor, ...]:
    """Two observations, leaf by leaf, to trace with."""
    return tuple(
        torch.ones((2, *leaf.shape), dtype=getattr(torch, leaf.dtype))
        for leaf in observation.values()
    )
