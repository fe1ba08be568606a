"""Importance: the order in which units are removed."""

from __future__ import annotations

import numpy as np
import pytest

from compress import Pruning
from compress.graphs.units import unit_counts
from compress.methods.unit_importance import most_important
from tests.support.architectures import altered, parts_of
from tests.support.contexts import context_of
from tests.support.pruning_oracle import (
    ARCHITECTURES,
    FLAT,
    IMAGES,
    assert_silences,
    assert_tensors_close,
    reconstructed,
    slow_forward,
    smallest,
    widths_of,
)
from tests.support.random_policies import compress, some_observations, some_tensors


def test_a_unit_that_never_answers_goes_first_by_activation() -> None:
    # magnitude would keep it: its weights are the largest, but its bias keeps relu at zero
    architecture = altered(FLAT, hidden=(4,), separate_value=False, activation="relu")
    tensors = some_tensors(architecture, 4)
    tensors["hidden.0.weight"][2] *= 10.0
    tensors["hidden.0.bias"][2] = -1000.0
    tensors["hidden.0.bias"][[0, 1, 3]] = 1.0
    visited = some_observations(architecture, 30)
    by_magnitude = compress(Pruning(0.25), architecture, tensors, context_of(visited))
    by_activation = compress(
        Pruning(0.25, importance="activation"), architecture, tensors, context_of(visited)
    )
    assert -1000.0 in by_magnitude.tensors["hidden.0.bias"]
    np.testing.assert_array_equal(
        by_activation.tensors["hidden.0.weight"], tensors["hidden.0.weight"][[0, 1, 3]]
    )


@pytest.mark.parametrize("compensate", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_importance_by_activation_is_of_what_the_next_layer_of_the_policy_reads(
    name, compensate
) -> None:
    architecture = ARCHITECTURES[name]
    tensors = some_tensors(architecture, 5)
    visited = some_observations(architecture, 30, seed=6)
    _, _, given = slow_forward(architecture, tensors, visited)
    link = Pruning(0.5, importance="activation", compensate=compensate)
    pruned = compress(link, architecture, tensors, context_of(visited))
    sizes = unit_counts(pruned.graph.architecture.layers)
    last = f"convolutions.{len(parts_of(architecture).convolutions) - 1}"
    removed = {}
    for layer, units in unit_counts(architecture.layers).items():
        tower, index = layer.split(".")[:2]
        reader = f"{tower}.{int(index) + 1}"
        if layer.endswith(".first"):
            reader = layer.replace("first", "second")
        elif f"{reader}.weight" not in tensors:
            ends = {"value_hidden": "value", "hidden": "policy"}
            reader = ends.get(tower) or ("hidden.0" if parts_of(architecture).hidden else "policy")
        weight = tensors[f"{reader}.weight"].astype(np.float64)
        by_unit = np.split(weight, units, axis=1)  # the inputs of one unit are side by side
        scores = []
        for unit in range(units):
            lost = given[layer][:, unit]
            if compensate:  # each position has a mean of its own where a dense layer reads it
                lost = lost - lost.mean(axis=0 if layer == last else None)
            scores.append(np.sqrt((lost**2).mean()) * np.linalg.norm(by_unit[unit]))
        removed[layer] = smallest(scores, units - sizes[layer])
    if compensate:
        expected = reconstructed(architecture, tensors, removed, visited)
        assert_tensors_close(pruned.tensors, expected, rtol=1e-2, atol=1e-4)
    else:
        assert_silences(pruned, architecture, tensors, removed)


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("importance", ["magnitude", "activation"])
@pytest.mark.parametrize("value", [0.0, -3.0, 1e30])
def test_weights_that_are_all_equal_keep_the_first_units(value, importance, scope) -> None:
    tensors = {
        name: np.full(shape, value, np.float32) for name, shape in IMAGES.tensor_shapes().items()
    }
    link = Pruning(0.5, importance=importance, scope=scope, round_to=1, compensate=False)
    # dark images: 1e30 times a bright one would leave float32
    context = context_of(np.zeros((4, *IMAGES.observation["observation"].shape), np.uint8))
    if value == 1e30:
        tensors = {n: t if n.startswith("convolutions.0") else t * 0 for n, t in tensors.items()}
    result = compress(link, IMAGES, tensors, context)
    assert all(np.isfinite(tensor).all() for tensor in result.tensors.values())
    assert all(width >= 1 for width in widths_of(result.graph.architecture))


def test_of_equal_units_the_first_stay() -> None:
    scores = np.random.default_rng(2).integers(0, 3, 200).astype(np.float64)
    by_hand = sorted(range(200), key=lambda unit: (-scores[unit], unit))[:100]
    np.testing.assert_array_equal(most_important(scores, 100), sorted(by_hand))
