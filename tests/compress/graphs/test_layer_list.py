"""One list of layers: torch, ONNX Runtime and a slow walk in numpy compute the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from aclearn.errors import ConfigError
from aclearn.policies import Layer, layer_kinds
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import ARCHITECTURES
from compress import ONNX, ChainError, CompressorChain, OnnxRuntime, PolicyGraph, build_onnx
from compress.graphs.graph_network import GraphNetwork
from compress.graphs.onnx_graph import KINDS
from compress.graphs.units import unit_counts
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support.acting import Acting
from tests.support.layer_walk import outputs
from tests.support.random_policies import some_observations
from tests.support.runtimes import preset


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_torch_onnx_and_numpy_compute_the_same_of_every_preset_and_version(name, small) -> None:
    architecture = preset(name)
    observations = some_observations(architecture, 2)
    module = PolicyNetwork(architecture, seed=0)
    runtimes = [Acting(kind(architecture)) for kind in (OnnxRuntime, TorchRuntime)]
    answers = []
    for seed in (1, 2):
        tensors = small.tensors(architecture, seed)
        logits, values, _ = outputs(PolicyGraph(architecture), tensors, observations)
        load_tensors(module, tensors)
        with torch.no_grad():
            found, torch_values = module(torch.from_numpy(observations))
        np.testing.assert_allclose(torch_values.numpy(), values, rtol=1e-4, atol=1e-4)
        within = {"rtol": 0, "atol": 1e-5 * np.abs(logits).max()}
        np.testing.assert_allclose(found.numpy(), logits, **within)
        for runtime in runtimes:
            runtime.load(tensors)
            answers.append(runtime.parameters(observations))
            assert answers[-1].dtype == np.float32
            np.testing.assert_allclose(answers[-1], logits, **within)
    # much further apart than the tolerance: outputs of the old weights would fail
    assert np.abs(answers[0] - answers[-1]).max() > 0.05


def with_leaky_relu(architecture):
    """The same list with one layer of an unknown kind."""
    layers = tuple(
        replace(layer, kind="leaky_relu") if layer.name == "hidden.0.relu" else layer
        for layer in architecture.layers
    )
    return replace(architecture, layers=layers)


def test_a_kind_of_layer_that_torch_or_onnx_does_not_know_is_refused_by_name(small) -> None:
    architecture = with_leaky_relu(small.images)
    known = "expected one of scale, convolution, dense"
    reason = rf"layer 'hidden.0.relu': torch has no kind 'leaky_relu'; {known}"
    with pytest.raises(ConfigError, match=reason):
        PolicyNetwork(architecture)
    reason = rf"layer 'hidden.0.relu': ONNX has no kind 'leaky_relu'; {known}"
    with pytest.raises(ChainError, match=reason):
        CompressorChain().add(ONNX()).plan(architecture)
    with pytest.raises(ChainError, match=reason):
        build_onnx(PolicyGraph(architecture))


def test_a_kind_of_layer_is_added_in_one_place_for_torch_and_in_one_for_onnx(
    small, monkeypatch
) -> None:
    architecture = with_leaky_relu(small.images)
    monkeypatch.setitem(layer_kinds.KINDS, "leaky_relu", lambda layer, given: nn.LeakyReLU(0.2))

    def leaky_relu(nodes, layer, x):
        nodes.add(layer, "LeakyRelu", [x], alpha=0.2)

    monkeypatch.setitem(KINDS, "leaky_relu", leaky_relu)
    tensors, observations = small.tensors(architecture, 4), small.observations(architecture, 5)
    module, runtime = PolicyNetwork(architecture), Acting(OnnxRuntime(architecture))
    load_tensors(module, tensors)
    runtime.load(tensors)
    before = outputs(PolicyGraph(small.images), tensors, observations)[2]["hidden.0"]
    x = np.where(before > 0, before, 0.2 * before)
    weights = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    x = np.maximum(x @ weights["hidden.1.weight"].T + weights["hidden.1.bias"], 0)
    expected = x @ weights["policy.weight"].T + weights["policy.bias"]
    with torch.no_grad():
        logits, _ = module(torch.from_numpy(observations))
    np.testing.assert_allclose(logits.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(runtime.parameters(observations), expected, rtol=1e-4, atol=1e-5)


def test_units_that_an_unknown_layer_reads_stay(small) -> None:
    assert set(unit_counts(small.images.layers)) - set(
        unit_counts(with_leaky_relu(small.images).layers)
    ) == {"hidden.0"}


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            lambda layers: tuple(layer for layer in layers if layer.name != "policy"),
            "expected a layer 'policy' with 3 outputs, got None",
        ),
        (lambda layers: layers[1:], "layer 'convolutions.0' reads \\['input'\\]; expected layers"),
        (lambda layers: (*layers, layers[-1]), "layer 'value' is there twice"),
        (
            lambda layers: (*layers, Layer("auxiliary", "dense", (), units=2)),
            "layer 'auxiliary' reads nothing",
        ),
    ],
    ids=["no-policy", "no-input", "twice", "reads-nothing"],
)
def test_a_list_that_cannot_be_computed_is_refused(small, spoil, reason) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(small.images, layers=spoil(small.images.layers))


@pytest.mark.parametrize("ranks", [(), (("policy", 1),)], ids=["whole", "factored"])
def test_values_and_parameters_keep_their_digits_under_bf16(architecture, small, ranks) -> None:
    graph = PolicyGraph(architecture, ranks=ranks)
    tensors = {n: np.zeros(s.shape, s.dtype) for n, s in graph.tensors(with_value=True).items()}
    # only the biases are left, and bf16 would make 100.5 of the first
    tensors["value.bias"][:] = 100.3
    biases = np.linspace(9.01, 12.07, architecture.parameter_count).astype(np.float32)
    tensors["policy.up.bias" if ranks else "policy.bias"][:] = biases
    network = GraphNetwork(graph).load(tensors)
    observations = torch.from_numpy(small.observations(architecture, 2))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits, values = network(observations)
    assert values.tolist() == pytest.approx([100.3, 100.3], rel=1e-6)
    torch.testing.assert_close(logits, torch.from_numpy(biases).expand(2, -1))
