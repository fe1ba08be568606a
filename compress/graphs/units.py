"""Units: the filters and hidden units of a policy, who reads them, and what they give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from aclearn.policies import Architecture
from compress.graphs.policy_graph import Tensors

Units = Mapping[str, NDArray[np.intp]]


def unit_counts(architecture: Architecture) -> dict[str, int]:
    """The layers that have units of their own, heads left out, and how many each has.

    The filters of a residual section are not among them: every sum in it ties them together, and
    what one block does not need the next may. Those between the two products of a block are.
    """
    counts = {f"convolutions.{i}": conv.filters for i, conv in enumerate(architecture.convolutions)}
    for i, section in enumerate(architecture.sections):
        for j, width in enumerate(section.blocks):
            counts[f"sections.{i}.blocks.{j}.first"] = width
    for tower in ("hidden", "value_hidden")[: 1 + architecture.separate_value]:
        counts |= {f"{tower}.{i}": width for i, width in enumerate(architecture.hidden)}
    return counts


def sources(architecture: Architecture) -> dict[str, str | None]:
    """The layer whose units each layer reads, in order of execution; None for the observations.

    What residual blocks have summed up goes by its section's name ("sections.0"). A dense layer
    after a convolution reads height × width numbers of each filter, those of one filter side by
    side; so `weight.reshape(out, units, -1)` is by unit for every kind of layer.
    """
    found: dict[str, str | None] = {}
    flat: str | None = None
    for i in range(len(architecture.convolutions)):
        found[f"convolutions.{i}"] = flat
        flat = f"convolutions.{i}"
    for i, section in enumerate(architecture.sections):
        found[f"sections.{i}.convolution"] = flat
        flat = f"sections.{i}"
        for j in range(len(section.blocks)):
            block = f"{flat}.blocks.{j}"
            found[f"{block}.first"], found[f"{block}.second"] = flat, f"{block}.first"
    towers = {"policy": "hidden", "value": "hidden"}
    if architecture.separate_value:
        towers["value"] = "value_hidden"
    for head, tower in towers.items():
        last = flat
        for i in range(len(architecture.hidden)):
            found[f"{tower}.{i}"] = last
            last = f"{tower}.{i}"
        found[head] = last
    return found


def narrowed(architecture: Architecture, widths: Mapping[str, int]) -> Architecture:
    """The same with other numbers of units, for the names of `unit_counts`."""
    return replace(
        architecture,
        convolutions=tuple(
            replace(conv, filters=widths[f"convolutions.{i}"])
            for i, conv in enumerate(architecture.convolutions)
        ),
        hidden=tuple(widths[f"hidden.{i}"] for i in range(len(architecture.hidden))),
        sections=tuple(
            replace(
                section,
                blocks=tuple(
                    widths[f"sections.{i}.blocks.{j}.first"] for j in range(len(section.blocks))
                ),
            )
            for i, section in enumerate(architecture.sections)
        ),
    )


def keep_units(
    architecture: Architecture, tensors: Tensors, kept: Units
) -> tuple[Architecture, dict[str, NDArray[np.float32]]]:
    """The policy without the other units: a narrower architecture and its tensors.

    Args:
        architecture: of the policy.
        tensors: by the names of `architecture.tensor_shapes()`.
        kept: indices in rising order for every layer of `unit_counts`; as many in a layer of the
            value's own tower as in the hidden layer beside it.
    """
    counts = unit_counts(architecture)
    small = narrowed(architecture, {name: len(indices) for name, indices in kept.items()})
    shapes = small.tensor_shapes()
    result: dict[str, NDArray[np.float32]] = {}
    for layer, source in sources(architecture).items():
        weight, bias = tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]
        if layer in kept:
            weight, bias = weight[kept[layer]], bias[kept[layer]]
        if source is not None and source in kept:
            weight = weight.reshape(len(weight), counts[source], -1)[:, kept[source]]
        weight = weight.reshape(shapes[f"{layer}.weight"])
        result[f"{layer}.weight"] = np.ascontiguousarray(weight)
        result[f"{layer}.bias"] = np.ascontiguousarray(bias)
    return small, result
