"""The int8 network in integers: slow, and independent of kernels."""

from __future__ import annotations

import numpy as np

from tests.support.layer_walk import by_unit, multiplied, walk


def integer_parameters(graph, tensors, observations):
    """The int8 network with int64 sums, float64 scales and rounding half to even."""

    def quantised(x, end):
        """Steps above the zero point."""
        zero = int(tensors[f"{end}_zero"])
        return np.clip(np.rint(x / float(tensors[f"{end}_scale"])) + zero, 0, 255) - zero

    def product(layer, x):
        name = layer.name
        if name in graph.kept:
            x = multiplied(layer, x, tensors[f"{name}.weight"].astype(np.float64))
            return x + by_unit(tensors[f"{name}.bias"], x) if layer.bias else x
        steps = quantised(x, f"{name}.input").astype(np.int64)
        sums = multiplied(layer, steps, tensors[f"{name}.weight"].astype(np.int64))
        if layer.bias:
            sums = sums + by_unit(tensors[f"{name}.bias"].astype(np.int64), sums)
        assert np.abs(sums).max() < 2**31  # fits an int32
        unit = float(tensors[f"{name}.input_scale"]) * tensors[f"{name}.weight_scale"].astype(
            np.float64
        )
        x = sums * (by_unit(unit, sums) if unit.ndim else unit)
        if f"{name}.output_scale" in tensors:
            x = quantised(x, f"{name}.output") * float(tensors[f"{name}.output_scale"])
        return x

    return walk(graph.layers(), observations, product, tensors)[graph.output]
