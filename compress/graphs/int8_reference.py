"""int8 graphs in torch: what their integers say, to hold other runtimes' answers against."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from compress.graphs.graph_network import ACTIVATIONS, after_product
from compress.graphs.policy_graph import Layer, PolicyGraph, Tensors


def integer_logits(
    graph: PolicyGraph, tensors: Tensors, observations: NDArray[Any]
) -> NDArray[np.float64]:
    """Logits `[N, A]` of an int8 graph: sums of integers without rounding, scales in float64.

    Products of integers are sums below 2⁵³ in float64, hence exact. A runtime that multiplies
    scales in float32 may round what lies on the edge between two steps to the other one.

    Args:
        graph: int8.
        tensors: as `graph.tensors()` says.
        observations: `[N, *shape]`.
    """
    layers = graph.layers()
    given = {name: torch.from_numpy(np.array(t, np.float64)) for name, t in tensors.items()}
    x = kept = torch.from_numpy(observations.astype(np.float64))
    if observations.dtype != np.uint8:
        x = _steps(x, given, layers[0].name, "input")
    for i, layer in enumerate(layers):
        name = layer.name
        if layer.input_activation is not None:  # a sum before it was in floats
            kept, x = x, _steps(ACTIVATIONS[layer.input_activation](x), given, name, "input")
        sums = _product(layer, x - given[f"{name}.input_zero"], given[f"{name}.weight"])
        per_row = (1, -1, *(1,) * (sums.ndim - 2))
        if layer.bias:
            sums = sums + given[f"{name}.bias"].reshape(per_row)
        x = sums * (given[f"{name}.input_scale"] * given[f"{name}.weight_scale"]).reshape(
            per_row if given[f"{name}.weight_scale"].ndim else ()
        )
        if layer.has_output_scale:
            steps = _steps(x, given, name, "output") - given[f"{name}.output_zero"]
            x = steps * given[f"{name}.output_scale"]
        x = after_product(layer, x, kept)
        if i + 1 < len(layers) and layers[i + 1].input_activation is None:
            x = _steps(x, given, layers[i + 1].name, "input")
    result: NDArray[np.float64] = x.numpy()
    return result


def _steps(x: Tensor, given: dict[str, Tensor], layer: str, end: str) -> Tensor:
    """The numbers 0 to 255 that stand for x; a half goes to the even one."""
    zero = given[f"{layer}.{end}_zero"]
    return (torch.round(x / given[f"{layer}.{end}_scale"]) + zero).clamp(0, 255)


def _product(layer: Layer, x: Tensor, weight: Tensor) -> Tensor:
    if layer.is_convolution:
        return nn.functional.conv2d(x, weight, stride=layer.stride, padding=layer.padding)
    return x.flatten(1) @ weight.T
