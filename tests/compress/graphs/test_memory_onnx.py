"""Memories in ONNX: step after step with the state fed back, against torch's module."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
import torch

from aclearn.policies import describe_architecture
from aclearn.policies.network import PolicyNetwork, tensors_of
from aclearn.types import LeafSpec, Memory, ObservationSpec
from compress import ONNX, ChainError, CompressorChain, OnnxRuntime, PolicyGraph, build_onnx
from compress.policy import random_observations
from compress.runtimes.graph_cache import GraphCache

_SPACES = {
    "mlp": ObservationSpec.plain((3,), "float32"),
    "small-cnn": ObservationSpec.plain((3, 10, 10), "uint8"),
}
_KINDS = (None, "gru")


def _architecture(preset, kind, layers=2):
    memory = Memory(kind, 8, layers)
    return describe_architecture(preset, observation=_SPACES[preset], actions=5, memory=memory)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("preset", _SPACES)
def test_onnx_runtime_goes_through_the_states_of_torch(preset, kind, rows) -> None:
    architecture = _architecture(preset, kind)
    network = PolicyNetwork(architecture, seed=1)
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(3.0)  # gates that open and close
    rng = np.random.default_rng(0)
    tensors = tensors_of(network)
    graph = PolicyGraph(architecture, runtime="onnx", static=True)
    executables = [
        OnnxRuntime(architecture).load(tensors),
        GraphCache().executable(graph, tensors),
        GraphCache().executable(graph, tensors, brief=True),
    ]
    states: list = [()] * 3
    expected: tuple[torch.Tensor, ...] = ()
    for _ in range(10):
        given = random_observations(architecture.observation, rows, rng)
        with torch.no_grad():
            leaves = {name: torch.from_numpy(leaf) for name, leaf in given.items()}
            output = network.step(leaves, expected)
        expected = output.state
        for i, executable in enumerate(executables):
            found = executable.step(given, states[i])
            states[i] = found.state
            pairs = zip(
                (found.parameters, *found.state), (output.parameters, *expected), strict=True
            )
            for ours, torchs in pairs:
                assert ours.dtype == np.float32
                np.testing.assert_allclose(ours, torchs.numpy(), rtol=1e-4, atol=1e-4)
    assert [part.shape for part in states[0]] == [(rows, 8)] * len(architecture.state)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_memory_is_a_valid_model_of_products_and_elementwise_operations(kind, precision) -> None:
    graph = PolicyGraph(_architecture("mlp", kind, 1), precision=precision)
    model = onnx.load_model_from_string(build_onnx(graph, tensors_as_inputs=True))
    onnx.checker.check_model(model, full_check=True)
    count = {"lstm": 2, "gru": 1}[kind]
    inputs = {tensor.name for tensor in model.graph.input} - graph.tensors().keys()
    assert inputs == {"observation", *(f"state_{i}" for i in range(count))}
    outputs = [tensor.name for tensor in model.graph.output]
    assert outputs == ["parameters", *(f"next_state_{i}" for i in range(count))]
    kinds = Counter(node.op_type for node in model.graph.node)
    product = {"fp32": "Gemm", "int8": "QGemm"}[precision]
    assert kinds[product] == 5  # two hidden layers, two of the cell, the head
    assert not {"LSTM", "GRU"} & kinds.keys()


@pytest.mark.parametrize(
    ("leaf", "memory", "refused"),
    [
        *((f"{name}state_0", kind, kind is not None) for name in ("", "next_") for kind in _KINDS),
        *(("parameters", kind, True) for kind in _KINDS),
        ("next_state_1", "gru", False),
    ],
)
def test_a_leaf_with_a_name_that_the_graph_has_is_refused(leaf, memory, refused) -> None:
    architecture = describe_architecture(
        "mlp",
        observation=ObservationSpec({leaf: LeafSpec((3,), "float32")}),
        actions=2,
        memory=Memory(memory, 4) if memory else None,
    )
    chain = CompressorChain().add(ONNX())
    if not refused:
        chain.plan(architecture)
        executable = OnnxRuntime(architecture).load(tensors_of(PolicyNetwork(architecture)))
        output = executable.step({leaf: np.ones((2, 3), np.float32)})
        assert [part.shape for part in output.state] == [(2, 4)] * len(architecture.state)
        return
    for refuse in (chain.plan, lambda given: build_onnx(PolicyGraph(given))):
        with pytest.raises(ChainError, match=f"'{leaf}' has the name of an output of the ONNX"):
            refuse(architecture)
