"""Importance of filters and hidden units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.types import Visited
from compress.graphs.units import Cell, cells, sources, unit_counts
from compress.policy import Policy
from compress.sequences import measured, network_outputs

Scores = dict[str, NDArray[np.float64]]
Activations = Mapping[str, NDArray[np.floating[Any]]]


def magnitudes(policy: Policy) -> Scores:
    """The L2 norm of each unit's weights and bias, by layer (Li et al. 2017, with the L2 norm).

    Those of a cell's unit are in all of its gates.
    """
    raw = policy.graph.raw_products()
    factors = {layer.name: layer.factor for layer in policy.graph.architecture.layers}
    scores: Scores = {}
    of_cells = {cell.name: cell for cell in cells(policy.graph.architecture.layers)}
    for name, count in unit_counts(policy.graph.architecture.layers).items():
        if name in of_cells:
            scores[name] = np.sqrt(_squares(policy, of_cells[name]))
            continue
        rows = policy.tensors[f"{name}.weight"].reshape(count, -1).astype(np.float64)
        if name in raw and policy.graph.scale_folded:
            rows /= factors[raw[name].name]  # the scale before `fuse`, which the bias has
        bias = policy.tensors[f"{name}.bias"].astype(np.float64)
        scores[name] = np.sqrt(np.sum(rows**2, axis=1) + bias**2)
    return scores


def _squares(policy: Policy, cell: Cell) -> NDArray[np.float64]:
    """The sum of squares `[units]` of the weights of each of a cell's units."""
    total = np.zeros(cell.units)
    for product in cell.products:
        for name in (f"{product}.weight", f"{product}.bias"):
            if name in policy.tensors:
                gates = policy.tensors[name].reshape(cell.gates, cell.units, -1)
                total += np.sum(gates.astype(np.float64) ** 2, axis=(0, 2))
    return total


def influences(policy: Policy, given: Activations, *, compensated: bool) -> Scores:
    """Each unit's root mean square activation times its outgoing weights' L2 norm, by layer.

    Where the next layer reads one number of each unit, its square is that layer's square error
    without the unit, as in the fit of `reconstruction`. For a filter it is the error if the
    positions did not compensate each other. Units that matter in few states count more than with
    the mean absolute activation. Of a unit that the value reads too, only the policy's weights
    count; of a cell's unit those of its own gates too.

    Args:
        given: activations `[N, units, positions]` by layer.
        compensated: the next bias will absorb the mean, so only deviations from it count.
    """
    reads = sources(policy.graph.architecture.layers)
    gates = {cell.name: cell.products for cell in cells(policy.graph.architecture.layers)}
    acting = {layer.name for layer in policy.graph.layers()}
    scores: Scores = {}
    for name, count in unit_counts(policy.graph.architecture.layers).items():
        readers = [reader for reader, source in reads.items() if source == name]
        own = [reader for reader in readers if reader in gates.get(name, ())]
        # the policy's reader before the value's
        following = [reader for reader in readers if reader not in own]
        following.sort(key=lambda reader: reader not in acting)
        used = [policy.tensors[f"{reader}.weight"] for reader in own + following[:1]]
        weight = np.concatenate(used).astype(np.float64)
        lost = given[name].astype(np.float64)
        if compensated:
            # a convolution has one bias for all positions
            lost -= lost.mean(axis=(0, 2) if weight.ndim == 4 else 0, keepdims=True)
        outgoing = np.sum(weight.reshape(len(weight), count, -1) ** 2, axis=(0, 2))
        scores[name] = np.sqrt(np.mean(lost**2, axis=(0, 2)) * outgoing)
    return scores


def most_important(scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Ascending indices of the `count` largest scores; of equal ones the first."""
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def in_their_places(units: NDArray[np.intp], before: NDArray[np.intp]) -> NDArray[np.intp]:
    """The units in an order in which those that were among as many before keep their places."""
    if len(units) != len(before):
        return units
    placed = before.copy()
    placed[~np.isin(before, units)] = np.setdiff1d(units, before)
    return placed


def activations(policy: Policy, visited: Visited) -> dict[str, NDArray[np.float32]]:
    """Activations `[N, units, positions]` of each layer of `unit_counts` in an fp32 policy.

    A memory's are those on the way through the sequences.
    """
    # imported here: reading and planning a chain needs no torch
    import torch

    from compress.graphs.graph_network import GraphNetwork

    layers = policy.graph.layers(with_value=True)
    counts, reads = unit_counts(layers), sources(layers)
    network = GraphNetwork(policy.graph).load(policy.tensors)
    with torch.inference_mode():
        outputs = measured(network_outputs(network, visited, every_layer=True), visited)
    rows = len(visited.measured(np.arange(len(visited))))
    return {
        source: outputs[layer.reads[0]].numpy().reshape(rows, counts[source], -1)
        for layer in layers
        if (source := reads.get(layer.name)) in counts and source is not None
    }
