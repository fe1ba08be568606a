"""Pruning of the cells of a memory: units of gates, states and of what reads them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aclearn.policies import Layer
from aclearn.types import PolicyVersion, Visited
from compress import ArtifactRuntime, Context, Policy, PolicyGraph, Pruning, parse_chain
from compress.graphs.graph_network import GraphNetwork
from compress.graphs.units import cells, keep_units, kept_state, unit_counts
from compress.sequences import network_outputs
from tests.support.random_policies import apply
from tests.support.sequences import recurrent, remembering, sequences, torch_step, walked

_KINDS = pytest.mark.parametrize("kind", ["lstm", "gru"])


def _heads(policy: Policy, visited: Visited) -> tuple[np.ndarray, np.ndarray]:
    outputs = network_outputs(GraphNetwork(policy.graph).load(policy.tensors), visited)
    return outputs["policy"].detach().numpy(), outputs["value"].detach().numpy()


@_KINDS
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("separate_value", [False, True])
def test_without_units_that_nothing_reads_a_policy_is_the_same_along_a_sequence(
    kind, layers, separate_value
) -> None:
    policy = remembering(recurrent(kind, layers=layers, separate_value=separate_value))
    architecture, tensors = policy.graph.architecture, dict(policy.tensors)
    rng = np.random.default_rng(3)
    kept = {}
    for i in range(layers):
        kept[f"memory.{i}"] = np.sort(rng.permutation(8)[:5])
        gone = np.setdiff1d(np.arange(8), kept[f"memory.{i}"])
        own = {f"memory.{i}.recurrent.weight"}
        following = {f"memory.{i + 1}.input.weight"}
        if i == layers - 1:
            value = "value_hidden.0.weight" if separate_value else "value.weight"
            following = {"policy.weight", value}
        for name in own | following:
            tensors[name] = tensors[name].copy()
            tensors[name][:, gone] = 0.0
    policy = Policy.of(architecture, tensors)
    small, some = keep_units(architecture, tensors, kept)
    assert small.state == (5,) * len(architecture.state)
    gates = {"lstm": 4, "gru": 3}[kind]
    assert small.tensor_shapes()["memory.0.recurrent.weight"] == (5 * gates, 5)
    state = tuple(rng.normal(size=(6, 8)).astype(np.float32) for _ in architecture.state)
    visited = sequences(architecture, length=20, state=state)
    mine = replace(visited, state=kept_state(architecture.layers, state, kept))
    pairs = zip(_heads(policy, visited), _heads(Policy.of(small, some), mine), strict=True)
    for whole, narrow in pairs:
        np.testing.assert_allclose(narrow, whole, rtol=1e-4, atol=1e-5)
    assert np.abs(_heads(policy, visited)[0][:6] - _heads(policy, visited)[0][-6:]).max() > 0.1


@_KINDS
def test_a_cell_loses_the_units_with_the_smallest_weights_in_all_gates(kind) -> None:
    policy = remembering(recurrent(kind))
    tensors = dict(policy.tensors)
    weak = [0, 3, 4, 6]
    for name in ("memory.0.input.weight", "memory.0.recurrent.weight", "memory.0.input.bias"):
        gates = tensors[name].reshape(-1, 8, *tensors[name].shape[1:]).copy()
        gates[:, weak] *= 0.1
        gates[0, 0] *= 10  # one strong gate is not enough
        tensors[name] = gates.reshape(tensors[name].shape)
    policy = replace(policy, tensors=tensors)
    link = Pruning(0.5, per_layer={"hidden": 0.0}, compensate=False)
    result = apply(link, policy, Context())
    assert result.graph.state == (4,) * len(policy.graph.state)
    kept = np.array([1, 2, 5, 7])
    rows = tensors["memory.0.recurrent.weight"].reshape(-1, 8, 8)[:, kept][:, :, kept]
    np.testing.assert_array_equal(result.tensors["memory.0.recurrent.weight"], rows.reshape(-1, 4))
    np.testing.assert_array_equal(
        result.tensors["policy.weight"], tensors["policy.weight"][:, kept]
    )


@_KINDS
def test_by_activation_units_stay_that_move_and_are_read(kind) -> None:
    policy = remembering(recurrent(kind))
    tensors = dict(policy.tensors)
    unread = [1, 2, 5, 6]
    for name in ("memory.0.recurrent.weight", "policy.weight"):
        tensors[name] = tensors[name].copy()
        tensors[name][:, unread] *= 1e-3
    policy = replace(policy, tensors=tensors)
    link = Pruning(0.5, per_layer={"hidden": 0.0}, importance="activation", compensate=False)
    visited = sequences(policy.graph.architecture)
    result = apply(link, policy, Context(visited))
    kept = np.array([0, 3, 4, 7])
    np.testing.assert_array_equal(
        result.tensors["policy.weight"], tensors["policy.weight"][:, kept]
    )
    # so that the pruned policy is nearly the same along other sequences
    other = sequences(policy.graph.architecture, seed=9)
    whole, narrow = (_heads(each, other)[0] for each in (policy, result))
    np.testing.assert_allclose(narrow, whole, rtol=0, atol=0.02 * np.abs(whole).max())


@_KINDS
def test_the_correction_brings_a_pruned_memory_nearer_along_sequences(kind) -> None:
    architecture = recurrent(kind, size=16)
    policy = remembering(architecture)
    fitted, others = (sequences(architecture, 40, seed=i) for i in (1, 2))
    whole, errors = _heads(policy, others)[0], []
    for compensate in (False, True):
        link = Pruning(0.25, compensate=compensate, round_to=1)
        result = apply(link, policy, Context(fitted))
        errors.append(np.mean((_heads(result, others)[0] - whole) ** 2))
        assert result.graph.state == (12,) * len(architecture.state)
    assert errors[1] < 0.8 * errors[0]


@_KINDS
def test_a_pruned_quantised_memory_is_published_and_acts_with_a_state_of_its_own(kind) -> None:
    policy = remembering(recurrent(kind, preset="small-cnn"))
    architecture = policy.graph.architecture
    links = parse_chain([{"prune": 0.5}, "int8", "onnx"])
    planned = links.plan(architecture)
    visited = sequences(architecture, 12)
    artifact = links.compress(policy, Context(visited, sequences(architecture, seed=4)))
    assert artifact.graph == planned
    assert artifact.graph.state == (4,) * len(architecture.state)
    assert not artifact.graph.keeps_state(architecture.state)
    executable = ArtifactRuntime(architecture).load(artifact)
    output = executable.step({name: x[:3] for name, x in visited.observations.items()})
    assert [part.shape for part in output.state] == [(3, 4)] * len(architecture.state)
    assert artifact.fidelity.observations > 20 and np.isfinite(artifact.fidelity.kl_max)


def test_units_of_a_cell_that_are_selected_again_keep_their_place_in_the_state() -> None:
    policy = remembering(recurrent("gru"))

    def strong(units, version):
        tensors = dict(policy.tensors)
        for name in ("memory.0.input.weight", "memory.0.recurrent.weight"):
            scale = np.where(np.isin(np.arange(24) % 8, units), 1.0, 0.01)[:, None]
            tensors[name] = (tensors[name] * scale).astype(np.float32)
        return replace(policy, tensors=tensors, at=PolicyVersion(0, version))

    link, context = Pruning(0.5, reselect_every=1, compensate=False), Context()
    places = []
    for version, units in enumerate([[1, 3, 4, 6], [0, 3, 4, 7]]):
        given = strong(units, version)
        result = apply(link, given, context)
        whole, narrow = (each.tensors["policy.weight"] for each in (given, result))
        places.append([np.flatnonzero((whole == column[:, None]).all(0))[0] for column in narrow.T])
    assert places == [[1, 3, 4, 6], [0, 3, 4, 7]]
    assert context.breaks == 1
    result = apply(link, strong([3, 4, 5, 7], 2), context)
    narrow = result.tensors["policy.weight"]
    whole = policy.tensors["policy.weight"]
    np.testing.assert_array_equal(narrow, whole[:, [5, 3, 4, 7]])  # 5 in the place of 0


def test_shares_of_the_memory_go_by_its_name() -> None:
    graph = PolicyGraph(recurrent("gru", layers=2))
    hidden = [("hidden.0", 64), ("hidden.1", 64)]
    counts = unit_counts(graph.architecture.layers)
    assert [*counts.items()][:4] == [*hidden, ("memory.0", 8), ("memory.1", 8)]
    for shares, expected in (
        ({"memory": 0.0}, (8, 8)),
        ({"memory.1": 0.75}, (4, 2)),
    ):
        assert Pruning(0.5, per_layer=shares, round_to=1).plan(graph).state == expected


def test_a_cell_whose_gates_another_layer_reads_keeps_its_units() -> None:
    architecture = recurrent("lstm", separate_value=False)
    layers = list(architecture.layers)
    assert len(cells(layers)) == 1
    layers.insert(-1, Layer("beside", "dense", ("memory.0.gates",), units=2))
    assert cells(layers) == () and "memory.0" not in unit_counts(layers)


def test_a_walk_of_the_trainer_s_module_is_the_walk_of_the_graph() -> None:
    policy = remembering(recurrent("lstm"))
    visited = sequences(policy.graph.architecture)
    np.testing.assert_allclose(
        visited.measured(_heads(policy, visited)[0]),
        walked(torch_step(policy), visited),
        rtol=1e-4,
        atol=1e-5,
    )
