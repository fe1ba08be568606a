"""Fusion: fewer steps, the same function."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

from aclearn.policies import Convolution, ResidualSection, build_architecture
from aclearn.types import ObservationSpec
from compress import ONNX, CompressorChain, Context, Fusion, LowRank, Policy, build_onnx
from compress.export import export_onnx
from compress.graphs.policy_graph import PolicyGraph
from tests.support.architectures import altered
from tests.support.pruning_oracle import assert_tensors_close
from tests.support.random_policies import (
    compress,
    graph_outputs,
    reference,
    some_observations,
    some_tensors,
)

IMAGES = build_architecture(
    "images", ObservationSpec.plain((3, 8, 8), "uint8"), 3, (Convolution(6, 4, 2),), (10,)
)
BYTES = build_architecture(
    "bytes", ObservationSpec.plain((6,), "uint8"), 3, (), (9, 8), "tanh", separate_value=True
)
ARCHITECTURES = {
    "images": IMAGES,
    "images-without-hidden": altered(IMAGES, hidden=()),
    "residual": altered(IMAGES, convolutions=(), sections=(ResidualSection(4, (4,)),)),
    "images-with-their-own-value": altered(IMAGES, separate_value=True),
    "bytes-with-their-own-value": BYTES,
    "bytes-without-hidden-shared": altered(BYTES, hidden=(), separate_value=False),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_raw_pixels_give_the_same_parameters_and_values(name) -> None:
    architecture = ARCHITECTURES[name]
    tensors, observations = some_tensors(architecture, 1), some_observations(architecture, 6)
    result = compress(Fusion(), architecture, tensors)
    assert result.graph == replace(PolicyGraph(architecture), scale_folded=True)
    assert all(scale.factor == 1.0 for scale in result.graph.raw_products().values())
    expected = reference(architecture, tensors, observations)
    for answer, wanted in zip(graph_outputs(result, observations), expected, strict=True):
        np.testing.assert_allclose(answer, wanted, rtol=1e-4, atol=1e-5)


def test_a_factored_first_layer_is_folded_in_one_half() -> None:
    factored = LowRank(3).compress(Policy.of(BYTES, some_tensors(BYTES, 2)), Context())
    result = Fusion().compress(factored, Context())
    assert dict(result.graph.ranks)["hidden.0"] == 3
    observations = some_observations(BYTES, 6)
    expected = graph_outputs(factored, observations)
    for answer, wanted in zip(graph_outputs(result, observations), expected, strict=True):
        np.testing.assert_allclose(answer, wanted, rtol=1e-4, atol=1e-5)


def test_floats_and_what_is_folded_already_stay_as_they_are() -> None:
    flat = altered(BYTES, observation_dtype="float32")
    folded = compress(Fusion(), IMAGES, some_tensors(IMAGES, 4))
    for policy in (Policy.of(flat, some_tensors(flat, 3)), folded):
        result = Fusion().compress(policy, Context())
        assert result.graph == policy.graph
        assert_tensors_close(result.tensors, policy.tensors, rtol=0)


@pytest.mark.parametrize("name", ["images", "flat"])
def test_activations_and_scales_are_part_of_the_products_in_the_session_that_acts(
    small, name, tmp_path
) -> None:
    architecture = getattr(small, name)
    chain = CompressorChain().add(Fusion()).add(ONNX())
    artifact = chain.compress(small.policy(architecture), Context())
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    model = export_onnx(artifact, {})
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def operators(graph):
        return {node.op_type for node in graph.graph.node}

    plain = onnx.load_model_from_string(build_onnx(PolicyGraph(architecture)))
    assert operators(plain) >= ({"Relu", "Mul"} if name == "images" else {"Tanh"})
    left = operators(onnx.load(tmp_path / "optimised.onnx"))
    assert {"Relu", "Tanh"} & operators(onnx.load_from_string(model))
    assert not {"Relu", "Tanh", "Mul", "Add"} & left, left
