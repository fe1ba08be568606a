"""Artifacts at work: after every swap the answers are those of the new weights."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import onnx
import pytest
import torch

from aclearn.policies import Convolution, ResidualSection
from aclearn.types import PolicyVersion
from compress import (
    ONNX,
    ArtifactRuntime,
    CompressorChain,
    Fusion,
    Policy,
    PolicyGraph,
    TorchScript,
    build_onnx,
)
from compress.methods.quantizer import Quantizer, has_vnni
from compress.runtimes.graph_cache import GraphCache
from tests.support.acting import Acting, parameters_of
from tests.support.architectures import altered, parts_of
from tests.support.contexts import context_of
from tests.support.random_policies import reference_parameters, some_observations, some_tensors
from tests.support.runtimes import SMALL, preset
from tests.support.waiting import run_python


def _int8(**settings):
    return Quantizer("int8", reduced_range=not has_vnni(), calibrate_every=1, **settings)


# links, and how far from torch's float64 logits they may be, as a share of the largest
_CHAINS = {
    "torch": ([], 1e-4),
    "onnx": ([ONNX], 1e-4),
    "torchscript": ([TorchScript], 1e-4),
    "fp16": ([lambda: Quantizer("fp16"), ONNX], 2e-3),
    "bf16": ([lambda: Quantizer("bf16"), ONNX], 2e-2),
    "fuse-fp16-torchscript": ([Fusion, lambda: Quantizer("fp16"), TorchScript], 5e-3),
    "bf16-torch": ([lambda: Quantizer("bf16")], 5e-2),
    "int8": ([_int8, ONNX], 8e-2),
    "fuse-int8-channels": ([Fusion, lambda: _int8(per_channel=True), ONNX], 8e-2),
}


IMAGES = altered(
    SMALL,
    observation_shape=(2, 20, 20),
    convolutions=(Convolution(16, 4, 2), Convolution(20, 3, 1)),
    hidden=(24,),
)


RESIDUAL = altered(
    SMALL,
    observation_shape=(2, 21, 20),
    convolutions=(),
    hidden=(24,),
    sections=(ResidualSection(8, (8, 6)), ResidualSection(12, (12,))),
)


def make_chain(name):
    chain = CompressorChain(fidelity_observations=0, batch_sizes=())
    for link in _CHAINS[name][0]:
        chain.add(link())
    return chain


@pytest.mark.parametrize(
    "architecture", [IMAGES, RESIDUAL, preset("mlp")], ids=["images", "residual", "mlp"]
)
@pytest.mark.parametrize("name", _CHAINS)
def test_after_every_swap_of_an_artifact_the_outputs_are_those_of_the_new_weights(
    name, architecture
) -> None:
    chain, runtime = make_chain(name), Acting(ArtifactRuntime(architecture))
    observations = some_observations(architecture, 24)
    context = context_of(some_observations(architecture, 64, seed=1))
    answers, size = [], 0.0
    for version in (1, 2, 3):
        tensors = some_tensors(architecture, version)
        policy = Policy.of(architecture, tensors, PolicyVersion(0, version))
        artifact = chain.compress(policy, context)
        runtime.load(artifact)
        expected = reference_parameters(architecture, tensors, observations)
        size = max(size, float(np.abs(expected).max()))
        answer = runtime.parameters(observations)
        assert answer.dtype == np.float32
        assert np.abs(answer - expected).max() <= _CHAINS[name][1] * size
        for count in (1, 2, 5):  # other batch sizes may sum up in another order
            some = runtime.parameters(observations[:count])
            np.testing.assert_allclose(some, answer[:count], rtol=0, atol=_CHAINS[name][1] * size)
        answers.append(answer)
    for old, new in pairwise(answers):
        assert np.abs(new - old).max() > 2 * _CHAINS[name][1] * size
    # and an executable keeps its weights when the arrays are used again
    tensors = {n: np.array(t) for n, t in artifact.tensors.items()}
    executable = GraphCache().executable(artifact.graph, tensors)
    for tensor in tensors.values():
        tensor[...] = 1
    found = parameters_of(executable, observations)
    np.testing.assert_allclose(found, answers[-1], rtol=1e-4, atol=1e-5)


def test_a_graph_is_traced_once_and_each_version_computes_with_its_own_weights(monkeypatch) -> None:
    trace, traces = torch.jit.trace, []

    def counted(*given, **how):
        traces.append(given)
        return trace(*given, **how)

    monkeypatch.setattr(torch.jit, "trace", counted)
    graph = PolicyGraph(IMAGES, runtime="torchscript", static=True)
    graphs, observations = GraphCache(), some_observations(IMAGES, 5)
    versions = [some_tensors(IMAGES, seed) for seed in (1, 2)]
    executables = [
        graphs.executable(graph, {name: tensors[name] for name in graph.tensors()})
        for tensors in versions
    ]
    assert len(traces) == 1
    # after the second one was made: the first keeps its own
    answers = [parameters_of(executable, observations) for executable in executables]
    for answer, tensors in zip(answers, versions, strict=True):
        expected = reference_parameters(IMAGES, tensors, observations)
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(answers[1] - answers[0]).max() > 0.05
    other = PolicyGraph(altered(IMAGES, hidden=(9,)), runtime="torchscript", static=True)
    graphs.executable(other, {n: np.zeros(s.shape, s.dtype) for n, s in other.tensors().items()})
    assert len(traces) == 2


_SWAPS = """
import numpy as np
import torch
from aclearn.policies import build_architecture
from aclearn.types import ObservationSpec
from compress.graphs.policy_graph import PolicyGraph
from compress.runtimes.graph_cache import GraphCache

def resident_bytes():
    with open("/proc/self/status") as status:
        [kilobytes] = [line.split()[1] for line in status if line.startswith("VmRSS:")]
    return 1024 * int(kilobytes)

torch.set_num_threads(1)
leaf = ObservationSpec.plain((8,), "float32")
architecture = build_architecture("wide", leaf, 2, (), (1400, 1400))
graph = PolicyGraph(architecture, runtime="torchscript", static=True)
specs = graph.tensors()
graphs, observations = GraphCache(), np.ones((1, 8), np.float32)
acting = None

def swap(versions):
    global acting
    for version in range(versions):
        tensors = {n: np.full(s.shape, 1e-3 * version, s.dtype) for n, s in specs.items()}
        acting = graphs.executable(graph, tensors)
        acting.step({"observation": observations})

swap(10)
before = resident_bytes()
swap(60)
size = sum(4 * int(np.prod(s.shape)) for s in specs.values())
print(size, resident_bytes() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_torchscript_lets_go_of_the_weights_of_earlier_versions() -> None:
    # in its own process, whose memory no other test changes
    result = run_python("-c", _SWAPS, check=True)
    size, grown = map(int, result.stdout.split())
    assert size == 4 * (1400 * (8 + 1) + 1400 * (1400 + 1) + 2 * (1400 + 1))  # 7.9 MB
    # sixty kept versions would be 60 sizes, and more if a runtime copies them in its own layout
    assert grown < 60 * size / 4


def test_swaps_between_graphs_never_mix_them() -> None:
    runtime = Acting(ArtifactRuntime(IMAGES))
    chains = {name: make_chain(name) for name in _CHAINS}
    contexts = {name: context_of(some_observations(IMAGES, 64, seed=1)) for name in _CHAINS}
    observations = some_observations(IMAGES, 16)
    rng = np.random.default_rng(0)
    names = [str(name) for name in rng.permutation([*_CHAINS, *_CHAINS])]
    before = None
    for version, name in enumerate(names):
        tensors = some_tensors(IMAGES, 100 + version)
        policy = Policy.of(IMAGES, tensors, PolicyVersion(0, version))
        runtime.load(chains[name].compress(policy, contexts[name]))
        expected = reference_parameters(IMAGES, tensors, observations)
        tolerance = _CHAINS[name][1] * float(np.abs(expected).max())
        answer = runtime.parameters(observations)
        assert np.abs(answer - expected).max() <= tolerance
        assert before is None or np.abs(before - expected).max() > 2 * tolerance
        before = answer


@pytest.mark.parametrize("architecture", [IMAGES, RESIDUAL], ids=["images", "residual"])
@pytest.mark.parametrize("name", ["onnx", "bf16", "int8", "fuse-int8-channels"])
def test_an_artifact_replaces_each_single_tensor(name, architecture) -> None:
    # at the optimisation level that actors use: the layout pass once kept old convolution weights
    context = context_of(some_observations(architecture, 64, seed=1))
    policy = Policy.of(architecture, some_tensors(architecture, 3))
    artifact = make_chain(name).compress(policy, context)
    observations = some_observations(architecture, 8)
    graphs = GraphCache()
    before = parameters_of(graphs.executable(artifact.graph, artifact.tensors), observations)
    for tensor, old in artifact.tensors.items():
        new = np.array(old)
        if tensor.endswith("scale"):
            new *= np.float32(1.25)
        elif tensor.endswith("_zero"):
            # by so much that some sums clip: in pairs, as around a sum, zeros cancel out
            new += np.uint8(128)
        elif name == "bf16":
            # numbers whose exponents are one larger are twice as large; zero stays zero
            new = np.where(new & 0x7F80, new + 0x80, new).astype(np.uint16)
        elif old.dtype == np.int8:
            new = -new
        else:
            new = new * 2 if old.dtype == np.int32 else new + np.float32(0.25)
        changed = {**artifact.tensors, tensor: new}
        fresh = parameters_of(GraphCache().executable(artifact.graph, changed), observations)
        answer = parameters_of(graphs.executable(artifact.graph, changed), observations)
        np.testing.assert_allclose(answer, fresh, rtol=1e-5, atol=1e-6)
        brief = parameters_of(graphs.executable(artifact.graph, changed, brief=True), observations)
        np.testing.assert_allclose(brief, fresh, rtol=1e-4, atol=1e-5)
        assert np.abs(answer - before).max() > 1e-3, tensor


@pytest.mark.parametrize(
    "given", [{}, {"precision": "int8"}, {"precision": "int8", "per_channel": True}], ids=str
)
@pytest.mark.parametrize(
    "architecture", [IMAGES, RESIDUAL, preset("mlp")], ids=["images", "residual", "mlp"]
)
def test_a_graph_is_valid_and_carries_no_weights(architecture, given) -> None:
    graph = PolicyGraph(architecture, **given)
    serialised = build_onnx(graph)
    model = onnx.load_model_from_string(serialised)
    external = {
        t.name: tuple(t.dims)
        for t in model.graph.initializer
        if t.data_location == onnx.TensorProto.EXTERNAL
    }
    assert external == {name: spec.shape for name, spec in graph.tensors().items()}
    assert len(serialised) < 16_384
    inlined = [t for t in model.graph.initializer if t.name not in external]
    kinds = [node.op_type for node in model.graph.node]
    if not given:
        assert [t.name for t in inlined] == ["input.factor"] * (architecture.convolves)
        for tensor in model.graph.initializer:  # the checker wants the weights themselves
            if tensor.name in external:
                zeros = np.zeros(external[tensor.name], np.float32)
                tensor.CopyFrom(onnx.numpy_helper.from_array(zeros, tensor.name))
        onnx.checker.check_model(model, full_check=True)
        return
    # nothing but the zero points of symmetric weights
    assert all(not onnx.numpy_helper.to_array(t).any() for t in inlined)
    convolutions = [layer for layer in graph.layers() if layer.kind == "convolution"]
    assert kinds.count("QLinearConv") == len(convolutions)
    assert "Conv" not in kinds and "Gemm" not in kinds
    assert kinds.count("QGemm") == len(parts_of(architecture).hidden) + 1
    if not parts_of(architecture).sections:
        assert (
            "QuantizeLinear" not in kinds
            or architecture.observation["observation"].dtype == "float32"
        )
