"""int8 graphs in torch: a reference for the outputs of other runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aclearn.policies import Layer
from aclearn.policies.layer_kinds import KINDS
from aclearn.policies.layers import MOST_DEVIATIONS, output_shapes, states
from aclearn.types import PolicyOutput, State
from compress.graphs.policy_graph import PolicyGraph, Tensors


class IntegerExecutable:
    """An int8 graph with exact sums of integers and scales in float64.

    Products of integers are sums below 2⁵³ in float64, hence exact. A runtime that multiplies
    scales in float32 may round a number between two steps to the other one.
    """

    def __init__(self, graph: PolicyGraph, tensors: Tensors) -> None:
        self._graph = graph
        self._given = {n: torch.from_numpy(np.array(t, np.float64)) for n, t in tensors.items()}
        self._shapes = output_shapes(graph.layers(), graph.architecture.observation)

    def step(
        self, observations: Mapping[str, NDArray[Any]], state: State = ()
    ) -> PolicyOutput[NDArray[Any]]:
        """The policy's output, float64, for observations `[B, *shape]` by leaf and its state."""
        graph, given = self._graph, self._given
        values = {name: torch.from_numpy(x.astype(np.float64)) for name, x in observations.items()}
        rows, kept = len(next(iter(values.values()))), states(graph.layers())
        before = state or [np.zeros((rows, each.units)) for each in kept]
        for each, part in zip(kept, before, strict=True):
            values[each.name] = torch.from_numpy(np.asarray(part, np.float64))
        for layer in graph.layers():
            read = [values[name] for name in layer.reads]
            if layer.kind == "state":
                continue
            if graph.is_integer(layer):
                output = _product(layer, read[0], given)
                if graph.has_output_scale(layer):
                    end = f"{layer.name}.output"
                    output = _steps(output, given, end) * given[f"{end}_scale"]
            elif layer.is_product:
                output = _multiplied(layer, read[0], given)
            elif layer.kind == "log_std":
                deviations = given[f"{layer.name}.log_std"].expand(len(read[0]), -1)
                output = torch.cat([read[0], deviations], -1)
            elif layer.kind == "normalise":
                away = (read[0] - given[f"{layer.name}.mean"]) / given[f"{layer.name}.std"]
                output = away.clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)
            else:
                output = KINDS[layer.kind](layer, self._shapes[layer.reads[0]])(*read)
            values[layer.name] = output
        later = tuple(values[each.next].numpy() for each in kept)
        return PolicyOutput(values[graph.output].numpy(), state=later)


def _steps(x: Tensor, given: dict[str, Tensor], end: str) -> Tensor:
    """Quantised steps of x relative to the zero point, rounded half to even."""
    zero = given[f"{end}_zero"]
    return (torch.round(x / given[f"{end}_scale"]) + zero).clamp(0, 255) - zero


def _product(layer: Layer, x: Tensor, given: dict[str, Tensor]) -> Tensor:
    name = layer.name
    sums = _multiplied(layer, _steps(x, given, f"{name}.input"), given)
    per_row = (1, -1, *(1,) * (sums.ndim - 2))
    scale = given[f"{name}.input_scale"] * given[f"{name}.weight_scale"]
    return sums * (scale.reshape(per_row) if scale.ndim else scale)


def _multiplied(layer: Layer, x: Tensor, given: dict[str, Tensor]) -> Tensor:
    weight = given[f"{layer.name}.weight"]
    if layer.kind == "convolution":
        sums = nn.functional.conv2d(x, weight, stride=layer.stride, padding=layer.padding)
    else:
        sums = x @ weight.T
    if layer.bias:
        sums = sums + given[f"{layer.name}.bias"].reshape(1, -1, *(1,) * (sums.ndim - 2))
    return sums
