"""Outputs of policies on visited observations: along sequences, each with its own state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aclearn.rollout import Executable
from aclearn.types import State, Visited, zeroed
from compress.errors import RefusedTensors
from compress.graphs.policy_graph import PolicyGraph

if TYPE_CHECKING:
    from torch import Tensor

    from compress.graphs.graph_network import GraphNetwork


def answers(executable: Executable, graph: PolicyGraph, visited: Visited) -> NDArray[np.float32]:
    """The parameters `[N, P]` of a graph's executable, finite; of invalid observations too.

    Each sequence begins with the visited state if that is the graph's too, else with zeros.

    Raises:
        RefusedTensors: they are not finite.
    """
    state, found = _state(graph, visited), []
    leaves = {name: visited.by_time(leaf) for name, leaf in visited.observations.items()}
    for t, begins in enumerate(visited.starts):
        at_t = {name: np.ascontiguousarray(leaf[t]) for name, leaf in leaves.items()}
        output = executable.step(at_t, zeroed(state, begins))
        found.append(finite(output.parameters, "the compressed policy"))
        state = output.state
    return np.stack(found, 1).reshape(len(visited), -1)


def network_outputs(
    network: GraphNetwork,
    visited: Visited,
    leaves: Sequence[Tensor] | None = None,
    *,
    every_layer: bool = False,
) -> dict[str, Tensor]:
    """The outputs `[N, …]` of a network's heads, or of all layers, by name; as in `answers`.

    Gradients reach the weights through the states of a whole sequence, not beyond its first.

    Args:
        leaves: the observations' tensors, where they are known.
    """
    leaves = network.leaf_tensors(visited.observations) if leaves is None else leaves
    if not network.states:
        return network.outputs(*leaves, every_layer=every_layer)
    import torch  # imported here: to run ONNX artifacts needs no torch

    state = _state(network.graph, visited)
    outputs = network.unrolled(
        *(turned(leaf, visited.sequences) for leaf in leaves),
        state=tuple(torch.from_numpy(np.array(part)) for part in state),
        starts=torch.from_numpy(visited.starts),
        every_layer=every_layer,
    )
    later = {each.next for each in network.states} if not every_layer else set()
    return {
        name: turned(output, visited.length)
        for name, output in outputs.items()
        if name not in later
    }


def _state(graph: PolicyGraph, visited: Visited) -> State:
    fits = graph.keeps_state(part.shape[1] for part in visited.state)
    return visited.state if fits else ()


def turned(rows: Tensor, count: int) -> Tensor:
    """Rows `[count · M, …]` in the order of `[M, count, …]`."""
    return rows.view(count, -1, *rows.shape[1:]).transpose(0, 1).flatten(0, 1)


def measured(outputs: dict[str, Tensor], visited: Visited) -> dict[str, Tensor]:
    """Those of the valid observations."""
    if visited.valid is None:
        return outputs
    import torch

    rows = torch.from_numpy(visited.valid)
    return {name: output[rows] for name, output in outputs.items()}


def finite(parameters: NDArray[Any], whose: str) -> NDArray[np.float32]:
    """Check the parameters: finite weights may overflow.

    Raises:
        RefusedTensors: one is not finite.
    """
    if not np.isfinite(parameters).all():
        raise RefusedTensors(f"weights: {whose} gives parameters that are not finite")
    return parameters
