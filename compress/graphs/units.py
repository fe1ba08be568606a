"""Units: the filters, hidden units and cells of a policy, and the layers that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from aclearn.policies import Architecture, Layer
from aclearn.policies.layers import states
from aclearn.types import ACTIVATIONS, State
from compress.graphs.policy_graph import PolicyGraph, Tensors

Units = Mapping[str, NDArray[np.intp]]

#: Kinds that compute each unit of their input by itself.
_UNITWISE = ("scale", "normalise", "max_pool", "flatten", *ACTIVATIONS)


@dataclass(frozen=True)
class Cell:
    """A memory's cell: a unit has a row in each gate of each product, and a number in each state.

    Attributes:
        name: of its units, that of its layers without the last word: "memory.0".
        gates: parts of each product's output, side by side.
        products: they give nothing but gates.
        states: the layers of its states.
        layers: those that give its units, and the sum of the gates.
    """

    name: str
    units: int
    gates: int
    products: tuple[str, ...]
    states: tuple[str, ...]
    layers: tuple[str, ...]

    def rows(self, kept: NDArray[np.intp]) -> NDArray[np.intp]:
        """The rows of these units in a product's weight."""
        return np.concatenate([kept + gate * self.units for gate in range(self.gates)])


def cells(layers: Iterable[Layer]) -> tuple[Cell, ...]:
    """The cells whose products give nothing but their gates."""
    layers = tuple(layers)
    by_name = {layer.name: layer for layer in layers}
    readers: dict[str, set[str]] = {}
    for layer in layers:
        for name in layer.reads:
            readers.setdefault(name, set()).add(layer.name)
    found = []
    mine: tuple[str, ...]
    for layer in layers:
        if layer.kind == "gru":
            gates, products, mine = 3, layer.reads[:2], (layer.name,)
            alone = all(readers[name] == {layer.name} for name in products)
        elif layer.kind == "lstm_output" and by_name[layer.reads[1]].kind == "lstm_cell":
            total, cell = layer.reads
            gates, products, mine = 4, by_name[total].reads, (total, cell, layer.name)
            alone = readers[total] == {cell, layer.name}
            alone &= all(readers[name] == {total} for name in products)
        else:
            continue
        kept = tuple(state.name for state in states(layers) if state.next in mine)
        if alone and kept and all(by_name[name].kind == "dense" for name in products):
            name, units = layer.name.rpartition(".")[0], by_name[kept[0]].units
            found.append(Cell(name, units, gates, products, kept, mine))
    return tuple(found)


def sources(layers: Iterable[Layer]) -> dict[str, str | None]:
    """The layer whose units each product reads, in order of execution; None for a leaf.

    Of a memory it is the cell (`Cell.name`), whose units the state has too. Sums, concatenations
    and unknown kinds stand under their own names: their units cannot be removed. A dense layer
    after a convolution reads height × width adjacent numbers of each filter, so
    `weight.reshape(out, units, -1)` is by unit for every kind of product.
    """
    return _walk(layers)[0]


def unit_counts(layers: Iterable[Layer]) -> dict[str, int]:
    """The numbers of units of products and cells that may lose some; heads are left out.

    Inputs of a sum are left out: it ties units together, and the next block may need a unit that
    this block does not. So are those of a concatenation. Units between the two products of a
    residual block are included.
    """
    layers = tuple(layers)
    tied = _walk(layers)[1]
    counts, found = dict[str, int](), cells(layers)
    of_cells = {cell.layers[-1]: cell for cell in found}
    gates = {name for cell in found for name in cell.products}
    for layer in layers:
        if (cell := of_cells.get(layer.name)) is not None and cell.name not in tied:
            counts[cell.name] = cell.units
        elif layer.is_product and not layer.head and layer.name not in tied | gates:
            counts[layer.name] = layer.units
    return counts


def _walk(layers: Iterable[Layer]) -> tuple[dict[str, str | None], set[str | None]]:
    """Whose units each product reads, and whose units a layer other than a product needs whole."""
    layers = tuple(layers)
    of_cell = {name: cell.name for cell in cells(layers) for name in (*cell.states, *cell.layers)}
    gives: dict[str, str | None] = {}
    found: dict[str, str | None] = {}
    tied: set[str | None] = {state.next for state in states(layers) if state.name not in of_cell}
    for layer in layers:
        read = [gives.get(name) for name in layer.reads]  # a leaf has no units
        if layer.name in of_cell:
            gives[layer.name] = of_cell[layer.name]
            continue
        if layer.is_product:
            found[layer.name] = read[0]
        elif layer.kind in _UNITWISE:
            gives[layer.name] = read[0]
            if layer.name in tied:
                tied.add(read[0])
            continue
        else:
            tied.update(read)
        gives[layer.name] = layer.name
    return found, tied


def narrowed(architecture: Architecture, widths: Mapping[str, int]) -> Architecture:
    """Layers with other numbers of units, by the names of `unit_counts`."""
    units = dict(widths)
    for cell in cells(architecture.layers):
        if cell.name in widths:
            units |= dict.fromkeys(cell.states, widths[cell.name])
            units |= dict.fromkeys(cell.products, cell.gates * widths[cell.name])
    layers = (
        replace(layer, units=units.get(layer.name, layer.units)) for layer in architecture.layers
    )
    return replace(architecture, layers=tuple(layers))


def kept_rows(layers: Iterable[Layer], kept: Units) -> dict[str, NDArray[np.intp]]:
    """The rows that stay of each product that loses some."""
    rows = dict(kept)
    for cell in cells(layers):
        if cell.name in kept:
            rows |= dict.fromkeys(cell.products, cell.rows(kept[cell.name]))
    return rows


def kept_state(layers: Iterable[Layer], state: State, kept: Units) -> State:
    """The numbers that stay of a state `[K, n]` each."""
    layers = tuple(layers)
    of_cell = {name: cell.name for cell in cells(layers) for name in cell.states}
    parts = zip(states(layers), state, strict=False)  # () stands for zeros
    some = ((part, kept.get(of_cell.get(layer.name, ""))) for layer, part in parts)
    return tuple(part if units is None else part[:, units] for part, units in some)


def keep_units(
    architecture: Architecture, tensors: Tensors, kept: Units
) -> tuple[Architecture, dict[str, NDArray[np.float32]]]:
    """A narrower architecture and its tensors; `kept` has indices by layer or cell."""
    counts, rows = unit_counts(architecture.layers), kept_rows(architecture.layers, kept)
    small = narrowed(architecture, {name: len(indices) for name, indices in kept.items()})
    shapes = small.tensor_shapes()
    others = (layer.tensor_names for layer in architecture.layers if not layer.is_product)
    result = {name: tensors[name] for names in others for name in names}
    for layer, source in sources(architecture.layers).items():
        weight, bias = tensors[f"{layer}.weight"], tensors.get(f"{layer}.bias")
        if layer in rows:
            weight, bias = weight[rows[layer]], None if bias is None else bias[rows[layer]]
        if source is not None and source in kept:
            weight = weight.reshape(len(weight), counts[source], -1)[:, kept[source]]
        weight = weight.reshape(shapes[f"{layer}.weight"])
        result[f"{layer}.weight"] = np.ascontiguousarray(weight)
        if bias is not None:
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
