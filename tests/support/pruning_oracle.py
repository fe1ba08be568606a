"""Small architectures, and oracles for pruning: the policy with silent units, and the fit."""

from __future__ import annotations

import numpy as np

from aclearn.policies import Convolution, ResidualSection, build_architecture
from aclearn.types import ACTIVATIONS, ObservationSpec
from compress import PolicyGraph
from compress.graphs.units import keep_units, sources, unit_counts
from tests.support.architectures import altered, parts_of
from tests.support.layer_walk import outputs, windows
from tests.support.random_policies import graph_outputs, some_observations

IMAGES = build_architecture(
    "images",
    ObservationSpec.plain((2, 9, 9), "uint8"),
    3,
    (Convolution(6, 3, 2), Convolution(5, 2, 1)),
    (10, 7),
)
FLAT = build_architecture(
    "flat", ObservationSpec.plain((5,), "float32"), 3, (), (12, 9), "tanh", separate_value=True
)
ARCHITECTURES = {
    "images": IMAGES,
    "images-without-hidden": altered(IMAGES, hidden=()),
    "one-convolution-tanh": altered(
        IMAGES, convolutions=(Convolution(9, 4, 3),), hidden=(6,), activation="tanh"
    ),
    "residual": altered(
        IMAGES,
        convolutions=(),
        sections=(ResidualSection(5, (6, 4)), ResidualSection(4, (5,))),
    ),
    "flat-with-its-own-value": FLAT,
    "flat-shared": altered(FLAT, separate_value=False, activation="relu"),
    "flat-uint8": altered(FLAT, observation_dtype="uint8", hidden=(8,)),
}


def slow_forward(architecture, tensors, observations, silent=None):
    """Logits, values and each layer's activations in float64; `silent` is layer → units at 0."""
    logits, values, given = outputs(PolicyGraph(architecture), tensors, observations, silent)
    activations = (layer for layer in architecture.layers if layer.kind in ACTIVATIONS)
    return logits, values, {layer.reads[0]: given[layer.name] for layer in activations}


def assert_silences(pruned, architecture, tensors, silent, rtol=1e-4):
    """The pruned policy answers as the whole one in which the units `silent` give 0."""
    observations = some_observations(architecture, 6, seed=9)
    expected = slow_forward(architecture, tensors, observations, silent)[:2]
    for answer, wanted in zip(graph_outputs(pruned, observations), expected, strict=True):
        np.testing.assert_allclose(answer, wanted, rtol=rtol, atol=rtol / 10)


def widths_of(architecture):
    parts = parts_of(architecture)
    inner = [width for section in parts.sections for width in section.blocks]
    return [c.filters for c in parts.convolutions] + inner + list(parts.hidden)


def smallest(scores, count):
    """The `count` units with the smallest scores; of equal ones the later."""
    return sorted(range(len(scores)), key=lambda unit: (scores[unit], -unit))[:count]


def norms(tensors, layer):
    weight, bias = tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]
    return [
        float(np.sqrt((weight[u].astype(np.float64) ** 2).sum() + float(bias[u]) ** 2))
        for u in range(len(bias))
    ]


def least_important(architecture, small, tensors):
    """Layer → the units that pruning by magnitude must remove for that size."""
    after = unit_counts(small.layers)
    return {
        name: smallest(norms(tensors, name), count - after[name])
        for name, count in unit_counts(architecture.layers).items()
        if after[name] < count
    }


def without(architecture, tensors, removed):
    """Architecture and tensors of the remaining units, uncorrected."""
    kept = {
        layer: np.array([unit for unit in range(count) if unit not in removed.get(layer, ())])
        for layer, count in unit_counts(architecture.layers).items()
    }
    return kept, *keep_units(architecture, tensors, kept)


def reconstructed(architecture, tensors, removed, visited, ridge=0.03):
    """The narrow policy after `reconstruction`, by a least-squares solver and the slow forward.

    Args:
        removed: layer → the removed units.
    """
    kept, small, narrow = without(architecture, tensors, removed)
    layers = {layer.name: layer for layer in architecture.layers}
    _, _, whole = slow_forward(architecture, tensors, visited)
    for name, source in sources(architecture.layers).items():
        if not removed.get(source):
            continue
        weight = tensors[f"{name}.weight"].astype(np.float64)
        reads = [whole[source], slow_forward(small, narrow, visited)[2][source]]
        if weight.ndim == 4:  # position by position: the channels of a window side by side
            reads = [windows(layers[name], x, 0).transpose(0, 2, 3, 1, 4, 5) for x in reads]
        rows = len(reads[0]) * (reads[0].shape[1] * reads[0].shape[2] if weight.ndim == 4 else 1)
        given, read = (x.reshape(rows, -1) for x in reads)
        units = kept.get(name, slice(None))
        wanted = (given @ weight.reshape(len(weight), -1).T + tensors[f"{name}.bias"])[:, units]
        now = narrow[f"{name}.weight"].astype(np.float64)
        missing = wanted - read @ now.reshape(len(now), -1).T - narrow[f"{name}.bias"]
        mean = read.mean(0)
        centred = read - mean
        penalty = ridge * (centred**2).sum() / min(read.shape)
        change = np.linalg.lstsq(
            np.concatenate([centred, np.sqrt(penalty) * np.eye(read.shape[1])]),
            np.concatenate([missing - missing.mean(0), np.zeros((read.shape[1], len(now)))]),
            rcond=None,
        )[0].T
        moved = missing.mean(0) - change @ mean
        narrow[f"{name}.weight"] = (now + change.reshape(now.shape)).astype(np.float32)
        narrow[f"{name}.bias"] = (narrow[f"{name}.bias"] + moved).astype(np.float32)
    return narrow


def assert_tensors_close(found, expected, **options):
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name], tensor, err_msg=name, **options)
