"""Policies on several leaves: every link, INT8 and exported models included."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.policies import Convolution, build_architecture
from aclearn.types import LeafSpec, ObservationSpec, Visited
from compress import ArtifactRuntime, Context, OnnxRuntime, Policy, PolicyGraph, parse_chain
from compress.export import export_onnx, run_onnx
from compress.graphs.int8_reference import integer_parameters
from tests.support.layer_walk import outputs
from tests.support.random_policies import some_observations, some_tensors

_SPEC = ObservationSpec(
    {
        "board": LeafSpec((1, 6, 7), "uint8", high=2),
        "camera": LeafSpec((4, 9, 8), "uint8", frame_stack=2),
        "hand.left": LeafSpec((3,), "float32"),
        "type": LeafSpec((4,), "float32"),  # an attribute of every torch module
    }
)
_CONVOLVES = build_architecture("c", _SPEC, 5, (Convolution(8, 3, 2), Convolution(8, 2, 1)), (16,))
_FLATTENS = build_architecture("f", _SPEC, 5, (), (16, 16), "tanh", separate_value=True)
_CHAINS = {
    "fuse>onnx": ["fuse", "onnx"],
    "torchscript": ["torchscript"],
    "fp16>onnx": ["fp16", "onnx"],
    "prune>onnx": [{"prune": 0.5}, "onnx"],
    "fuse>int8>onnx": ["fuse", "int8", "onnx"],
    "prune>int8>onnx": [{"prune": 0.5}, "int8", "onnx"],
    "low_rank>int8>onnx": [{"low_rank": 4}, "int8", "onnx"],
    "distill>int8>onnx": [{"distill": {"steps": 2, "batch": 8}}, "int8", "onnx"],
}


@pytest.mark.parametrize("architecture", [_CONVOLVES, _FLATTENS], ids=["convolves", "flattens"])
@pytest.mark.parametrize("chain", _CHAINS)
def test_every_link_compresses_a_policy_on_several_leaves(architecture, chain) -> None:
    policy = Policy.of(architecture, some_tensors(architecture, 1))
    context = Context(Visited(some_observations(architecture, 64, 2)), seed=1)
    links = parse_chain(_CHAINS[chain], fidelity_observations=32)
    artifact = links.compress(policy, context)
    assert list(artifact.probe_observations) == list(_SPEC)
    observations = some_observations(architecture, 9, 3)
    found = ArtifactRuntime(architecture).load(artifact).step(observations).parameters
    original, _, _ = outputs(policy.graph, policy.tensors, observations)
    size = np.abs(original).max()
    if chain in ("fuse>onnx", "torchscript", "fp16>onnx"):
        np.testing.assert_allclose(found, original, rtol=0, atol=5e-3 * size)
    if artifact.graph.precision == "int8":
        exact = integer_parameters(artifact.graph, artifact.tensors, observations)
        np.testing.assert_allclose(found, exact, rtol=0, atol=0.02 * size)
    if chain == "fuse>int8>onnx":
        np.testing.assert_allclose(found, original, rtol=0, atol=0.1 * size)
    if artifact.graph.runtime == "onnx":
        exported = run_onnx(export_onnx(artifact), observations)["parameters"]
        np.testing.assert_allclose(exported, found, rtol=1e-5, atol=1e-5)


def test_pixels_that_a_concatenation_reads_are_divided_in_the_graph() -> None:
    assert PolicyGraph(_FLATTENS).raw_products() == {}
    raw = PolicyGraph(_CONVOLVES).raw_products()
    assert {name: (scale.name, scale.factor) for name, scale in raw.items()} == {
        "board:convolutions.0": ("board:input", 1 / 2),
        "camera:convolutions.0": ("camera:input", 1 / 255),
    }
    for architecture in (_CONVOLVES, _FLATTENS):
        tensors, observations = some_tensors(architecture, 1), some_observations(architecture, 5)
        expected, _, _ = outputs(PolicyGraph(architecture), tensors, observations)
        found = OnnxRuntime(architecture).load(tensors).step(observations).parameters
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
