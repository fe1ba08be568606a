"""The int8 network in integers, position by position: slow, and of no kernel's making."""

from __future__ import annotations

import itertools

import numpy as np


def product(layer, x, weight):
    """The layer's sums of integer products, position by position."""
    if not layer.is_convolution:
        return np.einsum("ni,oi->no", x.reshape(len(x), -1), weight)
    kernel, stride = layer.weight[2], layer.stride
    x = np.pad(x, ((0, 0), (0, 0), *((layer.padding, layer.padding),) * 2))  # 0: without its zero
    height, width = ((size - kernel) // stride + 1 for size in x.shape[2:])
    result = np.zeros((len(x), len(weight), height, width), np.int64)
    for i, j in itertools.product(range(height), range(width)):
        window = x[:, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
        result[:, :, i, j] = np.einsum("ncij,ocij->no", window, weight)
    return result


def pooled(x):
    """The largest of 3 × 3 numbers, at every other one of them."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    return windows.max(axis=(4, 5))


def integer_logits(graph, tensors, observations):
    """The int8 network with int64 sums, float64 scales and rounding half to even."""
    layers = graph.layers()

    def quantised(x, layer, end="input"):
        scale = float(tensors[f"{layer.name}.{end}_scale"])
        return np.clip(np.rint(x / scale) + int(tensors[f"{layer.name}.{end}_zero"]), 0, 255)

    x = kept = observations
    if observations.dtype != np.uint8:
        x = quantised(observations.astype(np.float64), layers[0])
    for i, layer in enumerate(layers):
        if layer.input_activation is not None:  # a sum before it was in floats
            kept, x = x, quantised(np.maximum(x, 0.0), layer)
        zero = int(tensors[f"{layer.name}.input_zero"])
        weight = tensors[f"{layer.name}.weight"].astype(np.int64)
        sums = product(layer, x.astype(np.int64) - zero, weight)
        per_row = (1, -1, *(1,) * (sums.ndim - 2))
        if layer.bias:
            sums = sums + tensors[f"{layer.name}.bias"].astype(np.int64).reshape(per_row)
        assert np.abs(sums).max() < 2**31  # what an int32 holds
        unit = float(tensors[f"{layer.name}.input_scale"]) * tensors[
            f"{layer.name}.weight_scale"
        ].astype(np.float64)
        x = sums * (unit.reshape(per_row) if unit.ndim else unit)
        if layer.pooled or layer.closes_block:
            steps = quantised(x, layer, "output") - int(tensors[f"{layer.name}.output_zero"])
            x = steps * float(tensors[f"{layer.name}.output_scale"])
        x = pooled(x) if layer.pooled else x
        x = x + kept if layer.closes_block else x
        if layer.activation is not None:
            x = np.tanh(x) if layer.activation == "tanh" else np.maximum(x, 0.0)
        if i + 1 < len(layers) and layers[i + 1].input_activation is None:
            x = quantised(x, layers[i + 1])
    return x
