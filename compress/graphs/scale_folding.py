"""The division by 255 folded into the first layer of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compress.graphs.policy_graph import PolicyGraph, Tensors
from compress.graphs.units import sources

if TYPE_CHECKING:
    pass

Array = NDArray[Any]


def fold_scale(graph: PolicyGraph, tensors: Tensors) -> dict[str, Array]:
    """The tensors of an fp32 graph for the same graph with `scale_folded`."""
    folded, scale = dict(tensors), np.float32(graph.input_scale)
    if scale == 1.0:
        return folded
    for layer, source in sources(graph.architecture).items():
        factored = f"{layer}.down.weight"
        name = factored if factored in folded else f"{layer}.weight"
        if source is None and name in folded:
            folded[name] = folded[name] * scale
    return folded
