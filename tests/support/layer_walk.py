"""A list of layers computed by numpy in float64, without torch and ONNX."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def walk(layers, observations, product, tensors):
    """Each layer's output by name; `product(layer, x)` computes those with weights.

    States are zero.
    """
    leaves = observations if isinstance(observations, dict) else {"observation": observations}
    values = {name: leaf.astype(np.float64) for name, leaf in leaves.items()}
    rows = len(next(iter(values.values())))
    for layer in layers:
        if layer.kind == "state":
            values[layer.name] = np.zeros((rows, layer.units))
            continue
        x, *others = (values[name] for name in layer.reads)
        if layer.is_product:
            x = product(layer, x)
        elif layer.kind == "log_std":
            row = tensors[f"{layer.name}.log_std"].astype(np.float64)
            x = np.concatenate([x, np.tile(row, (len(x), 1))], 1)
        elif layer.kind in ("normalise", "denormalise"):
            mean, std = (tensors[f"{layer.name}.{of}"].astype(np.float64) for of in ("mean", "std"))
            inverse = layer.kind == "denormalise"
            x = x * std + mean if inverse else np.clip((x - mean) / std, -10, 10)
        elif layer.kind == "max_pool":
            x = windows(layer, x, -np.inf).max(axis=(4, 5))
        else:
            x = _BY_KIND[layer.kind](layer, x, *others)
        values[layer.name] = x
    return values


def multiplied(layer, x, weight):
    """The products and sums of a layer, floats or integers, without its bias."""
    if layer.kind == "dense":
        return np.einsum("ni,oi->no", x, weight)
    return np.einsum("nchwij,ocij->nohw", windows(layer, x, 0), weight, optimize=True)


def by_unit(numbers, x):
    """One number for each unit, in a shape that goes with x `[N, units, …]`."""
    return np.reshape(numbers, (1, -1, *(1,) * (x.ndim - 2)))


def outputs(graph, tensors, observations, silent=None):
    """Logits, values and each layer's output of an fp32 graph.

    `silent` is layer → units that give 0.
    """
    silent = silent or {}

    def product(layer, x):
        x = multiplied(layer, x, tensors[f"{layer.name}.weight"].astype(np.float64))
        x = x + by_unit(tensors[f"{layer.name}.bias"], x) if layer.bias else x
        x[:, list(silent.get(layer.name, ()))] = 0.0
        return x

    values = walk(graph.layers(with_value=True), observations, product, tensors)
    value = values["value"][:, 0] if "value" in values else None
    return values[graph.output], value, values


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _lstm_cell(layer, gates, cell):
    i, f, g, _ = np.split(gates, 4, axis=1)
    return _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)


def _gru(layer, of_input, of_state, state):
    (r, z, n), (r_h, z_h, n_h) = np.split(of_input, 3, axis=1), np.split(of_state, 3, axis=1)
    z = _sigmoid(z + z_h)
    return (1 - z) * np.tanh(n + _sigmoid(r + r_h) * n_h) + z * state


def windows(layer, x, outside):
    """The inputs of each output of a convolution or a pool: `[N, C, H, W, k, k]`."""
    padding = (layer.padding, layer.padding)
    x = np.pad(x, ((0, 0), (0, 0), padding, padding), constant_values=outside)
    seen = sliding_window_view(x, (layer.kernel, layer.kernel), axis=(2, 3))
    return seen[:, :, :: layer.stride, :: layer.stride]


_BY_KIND = {
    "scale": lambda layer, x: x * layer.factor,
    "flatten": lambda layer, x: x.reshape(len(x), -1),
    "relu": lambda layer, x: np.maximum(x, 0.0),
    "tanh": lambda layer, x: np.tanh(x),
    "elu": lambda layer, x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "silu": lambda layer, x: x / (1 + np.exp(-x)),
    "add": lambda layer, x, y: x + y,
    "dueling": lambda layer, a, v: v + a - a.mean(axis=1, keepdims=True),
    "lstm_cell": _lstm_cell,
    "lstm_output": lambda layer, gates, c: _sigmoid(np.split(gates, 4, axis=1)[3]) * np.tanh(c),
    "gru": _gru,
    "concat": lambda layer, *parts: np.concatenate(parts, axis=1),
}
