"""Ridge-regression compensation for pruned units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aclearn.policies.layers import recurrence
from aclearn.types import Visited
from compress.errors import RefusedTensors
from compress.graphs.graph_network import GraphNetwork
from compress.graphs.units import Units, keep_units, kept_rows, kept_state, sources, unit_counts
from compress.policy import Policy
from compress.sequences import network_outputs, turned

#: Positions of all observations together from which a convolution is fitted: several for each of
#: its few hundred inputs.
_MOST_ROWS = 6000
#: Least variance of a layer's inputs as a share of their mean square: less is rounding.
_LEAST_VARIANCE = 1e-6


def reconstruction(
    policy: Policy,
    kept: Units,
    visited: Visited,
    *,
    ridge: float,
    rng: np.random.Generator,
) -> dict[str, NDArray[np.float32]]:
    """Corrections of the tensors of `keep_units` that bring the narrow policy near the whole one.

    Each layer that reads removed units is fitted, by least squares, to its outputs in the whole
    policy. Its inputs are those of the narrow policy, earlier corrections included, so that errors
    do not add up over layers (He, Zhang and Sun 2017, "Channel Pruning for Accelerating Very Deep
    Neural Networks", §3). Layers between a memory's state and its next value are fitted with the
    inputs of the whole policy, since theirs depend on them. The ridge penalises the change, so
    weights stay where observations do not determine them.

    Args:
        policy: the whole one: fp32, not factored, with its value.
        ridge: penalty of a change of the weights, in mean variances of the layer's inputs.
        rng: draws the positions of convolutions.

    Raises:
        RefusedTensors: activations are not finite.
    """
    graph = policy.graph
    counts = unit_counts(graph.architecture.layers)
    narrow_architecture, tensors = keep_units(graph.architecture, policy.tensors, kept)
    whole = GraphNetwork(graph).load(policy.tensors)
    narrow = GraphNetwork(graph.with_architecture(narrow_architecture)).load(tensors)
    layers = {layer.name: layer for layer in graph.architecture.layers}
    rows = kept_rows(layers.values(), kept)
    within = {layer.name for layer in recurrence(layers.values()).steps}
    changes: dict[str, NDArray[np.float32]] = {}
    with torch.inference_mode():
        outputs = network_outputs(whole, visited, every_layer=True)
    if whole.states:  # the narrow network reads them in this order
        outputs = {name: turned(output, visited.sequences) for name, output in outputs.items()}
    valid = None
    if visited.valid is not None:
        valid = torch.from_numpy(visited.by_time(visited.valid).ravel())
    for layer, source in sources(layers.values()).items():
        if source is None or source not in kept or len(kept[source]) == counts[source]:
            continue
        wanted = outputs[layer]
        if layer in rows:
            wanted = wanted[:, torch.from_numpy(rows[layer])]
        module = narrow.get_submodule(layer)
        correct = _correct(layer, wanted, changes, ridge, rng, valid)
        if layer in within:
            read = outputs[layers[layer].reads[0]][:, torch.from_numpy(kept[source])]
            with torch.inference_mode():
                correct(module, (read,))
        else:
            module.register_forward_pre_hook(correct)
    state = kept_state(layers.values(), visited.state, kept)
    with torch.inference_mode():
        network_outputs(narrow, replace(visited, state=state))
    return changes


def _correct(
    layer: str,
    wanted: Tensor,
    changes: dict[str, NDArray[np.float32]],
    ridge: float,
    rng: np.random.Generator,
    valid: Tensor | None,
) -> Callable[..., None]:
    def hook(module: nn.Conv2d | nn.Linear, inputs: tuple[Tensor, ...]) -> None:
        read, given = inputs[0], wanted
        if valid is not None:
            read, given = read[valid], given[valid]
        if isinstance(module, nn.Conv2d):
            read, given = _some_rows(module, read, given, rng)
        weight, bias = module.weight, module.bias
        missing = given - nn.functional.linear(read, weight.flatten(1), bias)
        by_weight, by_bias = _fit(read, missing, ridge, centred=bias is not None)
        if not (by_weight.isfinite().all() and by_bias.isfinite().all()):
            raise RefusedTensors(f"prune: the input or output of {layer} is not finite")
        weight += by_weight.reshape(weight.shape)
        changes[f"{layer}.weight"] = by_weight.reshape(weight.shape).numpy()
        if bias is not None:
            bias += by_bias
            changes[f"{layer}.bias"] = by_bias.numpy()

    return hook


def _some_rows(
    module: nn.Conv2d, read: Tensor, given: Tensor, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """A convolution's inputs `[n, F]` and outputs `[n, out]` at some positions of all images."""
    padding = module.padding
    assert not isinstance(padding, str)  # layers count their zeros
    patches = nn.functional.pad(read, (padding[1], padding[1], padding[0], padding[0]))
    for axis in (0, 1):
        # a view: copies of all patches take hundreds of MB
        patches = patches.unfold(2 + axis, module.kernel_size[axis], module.stride[axis])
    images, _, height, width = given.shape
    count = images * height * width
    chosen = np.arange(count)
    if count > _MOST_ROWS:
        chosen = rng.choice(count, _MOST_ROWS, replace=False)
    image, y, x = map(torch.from_numpy, np.unravel_index(chosen, (images, height, width)))
    return patches[image, :, y, x].flatten(1), given[image, :, y, x]


def _fit(read: Tensor, missing: Tensor, ridge: float, *, centred: bool) -> tuple[Tensor, Tensor]:
    """Weights `[out, F]` and biases `[out]` that give `missing` `[n, out]` from `read` `[n, F]`.

    The penalty `ridge` is in mean variances of the inputs, summed over n. The biases are zero
    unless `centred`.
    """
    squares = float(read.square().sum())
    mean, mean_missing = centred * read.mean(0), centred * missing.mean(0)
    read, missing = read - mean, missing - mean_missing
    rows, width = read.shape
    # the smaller of the two systems; they have the same solution
    primal = width <= rows
    gram = (read.T @ read if primal else read @ read.T).double()
    variance = max(float(gram.trace()), _LEAST_VARIANCE * squares) / min(rows, width)
    # an input that is zero throughout must not make the system singular
    gram.diagonal().add_(ridge * variance or 1.0)
    if primal:
        weight = torch.linalg.solve(gram, (read.T @ missing).double()).T.float()
    else:
        weight = torch.linalg.solve(gram, missing.double()).T.float() @ read
    return weight, mean_missing - weight @ mean
