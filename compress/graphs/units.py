"""Units: the filters and hidden units of a policy, and the layers that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from aclearn.policies import Architecture, Layer
from aclearn.types import ACTIVATIONS
from compress.graphs.policy_graph import PolicyGraph, Tensors

Units = Mapping[str, NDArray[np.intp]]

#: Kinds that compute each unit of their input by itself.
_UNITWISE = ("scale", "normalise", "max_pool", "flatten", *ACTIVATIONS)


def sources(layers: Iterable[Layer]) -> dict[str, str | None]:
    """The layer whose units each product reads, in order of execution; None for a leaf.

    Sums, concatenations and unknown kinds stand under their own names: their units cannot be
    removed. A dense layer after a convolution reads height × width adjacent numbers of each filter,
    so `weight.reshape(out, units, -1)` is by unit for every kind of product.
    """
    return _walk(layers)[0]


def unit_counts(layers: Iterable[Layer]) -> dict[str, int]:
    """The products whose units may be removed, heads left out, and their numbers of units.

    Inputs of a sum are left out: it ties units together, and the next block may need a unit that
    this block does not. So are those of a concatenation. Units between the two products of a
    residual block are included.
    """
    layers = tuple(layers)
    tied = _walk(layers)[1]
    return {
        layer.name: layer.units
        for layer in layers
        if layer.is_product and not layer.head and layer.name not in tied
    }


def _walk(layers: Iterable[Layer]) -> tuple[dict[str, str | None], set[str | None]]:
    """Whose units each product reads, and whose units a layer other than a product needs whole."""
    gives: dict[str, str | None] = {}
    found: dict[str, str | None] = {}
    tied: set[str | None] = set()
    for layer in layers:
        read = [gives.get(name) for name in layer.reads]  # a leaf has no units
        if layer.is_product:
            found[layer.name] = read[0]
        elif layer.kind in _UNITWISE:
            gives[layer.name] = read[0]
            continue
        else:
            tied.update(read)
        gives[layer.name] = layer.name
    return found, tied


def narrowed(architecture: Architecture, widths: Mapping[str, int]) -> Architecture:
    """Layers with other numbers of units, by the names of `unit_counts`."""
    layers = (
        replace(layer, units=widths.get(layer.name, layer.units)) for layer in architecture.layers
    )
    return replace(architecture, layers=tuple(layers))


def keep_units(
    architecture: Architecture, tensors: Tensors, kept: Units
) -> tuple[Architecture, dict[str, NDArray[np.float32]]]:
    """A narrower architecture and its tensors; `kept` has ascending indices by layer."""
    counts = unit_counts(architecture.layers)
    small = narrowed(architecture, {name: len(indices) for name, indices in kept.items()})
    shapes = small.tensor_shapes()
    others = (layer.tensor_names for layer in architecture.layers if not layer.is_product)
    result = {name: tensors[name] for names in others for name in names}
    for layer, source in sources(architecture.layers).items():
        weight, bias = tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]
        if layer in kept:
            weight, bias = weight[kept[layer]], bias[kept[layer]]
        if source is not None and source in kept:
            weight = weight.reshape(len(weight), counts[source], -1)[:, kept[source]]
        weight = weight.reshape(shapes[f"{layer}.weight"])
        result[f"{layer}.weight"] = np.ascontiguousarray(weight)
        result[f"{layer}.bias"] = np.ascontiguousarray(bias)
    return small, result


def fold_scale(graph: PolicyGraph, tensors: Tensors) -> dict[str, NDArray[np.float32]]:
    """The tensors of an fp32 graph for the same graph with `scale_folded`."""
    folded = dict(tensors)
    for layer, scale in graph.raw_products().items():
        name = f"{layer}.weight"
        if scale.factor != 1.0 and name in folded:
            folded[name] = folded[name] * np.float32(scale.factor)
    return folded
