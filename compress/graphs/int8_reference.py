"""int8 graphs in torch: a reference for the outputs of other runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aclearn.policies import Layer
from aclearn.policies.layers import MOST_DEVIATIONS, output_shapes
from aclearn.policies.network import KINDS
from compress.graphs.policy_graph import PolicyGraph, Tensors


def integer_parameters(
    graph: PolicyGraph, tensors: Tensors, observations: Mapping[str, NDArray[Any]]
) -> NDArray[np.float64]:
    """Outputs `[N, P]` of an int8 graph: exact sums of integers, scales in float64.

    Products of integers are sums below 2⁵³ in float64, hence exact. A runtime that multiplies
    scales in float32 may round a number between two steps to the other one.
    """
    given = {name: torch.from_numpy(np.array(t, np.float64)) for name, t in tensors.items()}
    shapes = output_shapes(graph.layers(), graph.architecture.observation)
    values = {name: torch.from_numpy(x.astype(np.float64)) for name, x in observations.items()}
    for layer in graph.layers():
        read = [values[name] for name in layer.reads]
        if layer.is_product:
            values[layer.name] = _product(layer, read[0], given)
            if graph.has_output_scale(layer):
                end = f"{layer.name}.output"
                values[layer.name] = _steps(values[layer.name], given, end) * given[f"{end}_scale"]
        elif layer.kind == "log_std":
            rows = given[f"{layer.name}.log_std"].expand(len(read[0]), -1)
            values[layer.name] = torch.cat([read[0], rows], -1)
        elif layer.kind == "normalise":
            away = (read[0] - given[f"{layer.name}.mean"]) / given[f"{layer.name}.std"]
            values[layer.name] = away.clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)
        else:
            values[layer.name] = KINDS[layer.kind](layer, shapes[layer.reads[0]])(*read)
    result: NDArray[np.float64] = values[layer.name].numpy()
    return result


def _steps(x: Tensor, given: dict[str, Tensor], end: str) -> Tensor:
    """Quantised steps of x relative to the zero point, rounded half to even."""
    zero = given[f"{end}_zero"]
    return (torch.round(x / given[f"{end}_scale"]) + zero).clamp(0, 255) - zero


def _product(layer: Layer, x: Tensor, given: dict[str, Tensor]) -> Tensor:
    name = layer.name
    steps, weight = _steps(x, given, f"{name}.input"), given[f"{name}.weight"]
    if layer.kind == "convolution":
        sums = nn.functional.conv2d(steps, weight, stride=layer.stride, padding=layer.padding)
    else:
        sums = steps @ weight.T
    per_row = (1, -1, *(1,) * (sums.ndim - 2))
    if layer.bias:
        sums = sums + given[f"{name}.bias"].reshape(per_row)
    scale = given[f"{name}.input_scale"] * given[f"{name}.weight_scale"]
    return sums * (scale.reshape(per_row) if scale.ndim else scale)
