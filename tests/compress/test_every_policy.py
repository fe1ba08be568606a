"""Policies of every kind go through chains of all links, and act in every runtime."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aclearn.distributions import distribution_of
from aclearn.policies import Convolution, build_architecture
from aclearn.types import ActionSpec, LeafSpec, Memory, ObservationSpec, PolicyVersion, Visited
from aclearn.types.action_spec import ActionPart
from compress import ArtifactRuntime, Context, OnnxRuntime, Policy, PolicyGraph, parse_chain
from compress.export import export_onnx, run_onnx
from compress.graphs.int8_reference import IntegerExecutable
from compress.policy import random_observations
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support.architectures import parts_of
from tests.support.layer_walk import outputs
from tests.support.random_policies import some_tensors

_BOX = ActionPart(("box",), (2,), "float32", low=(-1.0,) * 2, high=(1.0,) * 2)
_CHOICES = ActionPart(("choices",), (2,), counts=(3, 2), starts=(0, 0))
_FLAT = ObservationSpec.plain((5,), "float32")
_PIXELS = ObservationSpec.plain((2, 9, 8), "uint8", 2)
_LEAVES = ObservationSpec(
    {
        "board": LeafSpec((1, 6, 7), "uint8", high=2),
        "camera": LeafSpec((4, 9, 8), "uint8", frame_stack=2),
        "hand.left": LeafSpec((3,), "float32"),
        "type": LeafSpec((4,), "float32"),  # an attribute of every torch module
    }
)


def _mlp(observation=_FLAT, actions=3, **settings):
    return build_architecture(
        "mlp", observation, actions, (), (16, 8), "tanh", separate_value=True, **settings
    )


def _cnn(observation, **settings):
    layers = (Convolution(8, 3, 2), Convolution(8, 2, 1)), (16,)
    return build_architecture("cnn", observation, 5, *layers, **settings)


_POLICIES = {
    "choices": _mlp(actions=ActionSpec.of((_CHOICES,))),
    "box": _mlp(actions=ActionSpec.of((_BOX,))),
    "box by observations": _mlp(actions=ActionSpec.of((_BOX,)), std_from_observations=True),
    "mixed": _mlp(actions=ActionSpec.of((_BOX, _CHOICES))),
    "leaves": _cnn(_LEAVES),
    "leaves flattened": _mlp(_LEAVES),
    "normalised": _mlp(normalise_observations=True, normalise_returns=True),
    "lstm": _mlp(memory=Memory("lstm", 8)),
    "gru of leaves": _cnn(_LEAVES, memory=Memory("gru", 8, 2)),
    "q head": _cnn(_PIXELS, critic="q"),
    "dueling": _cnn(_PIXELS, critic="dueling", separate_value=True),
}
_TRAINING = {"steps": 2, "batch": 8}
_CHAINS: dict[str, list[object]] = {
    "none": [],
    "onnx": ["onnx"],
    "fuse>torchscript": ["fuse", "torchscript"],
    "fp16>onnx": ["fp16", "onnx"],
    "fp16": ["fp16"],
    "bf16>torchscript": ["bf16", "torchscript"],
    "fuse>prune>int8>onnx": ["fuse", {"prune": 0.5}, "int8", "onnx"],
    "int8 by channel>onnx": [{"int8": {"per_channel": True}}, "onnx"],
    "int8 between layers in fp32>onnx": [{"int8": {"keep_first": 0, "keep_last": 1}}, "onnx"],
    "low_rank>int8>onnx": [{"low_rank": 2}, "int8", "onnx"],
    "prune>distill>onnx": [
        {"prune": {"sparsity": 0.5, "importance": "activation"}},
        {"distill": _TRAINING},
        "onnx",
    ],
    "low_rank>distill>onnx": [{"low_rank": 2}, {"distill": _TRAINING}, "onnx"],
    "distill a preset>int8>onnx": [
        {"distill": {"student": "mlp", "hidden": [8], **_TRAINING}},
        "int8",
        "onnx",
    ],
}
_CASES = [
    (policy, chain)
    for policy in _POLICIES
    for chain in _CHAINS
    if not (policy == "q head" and "distill" in chain)  # refused: see test_contract.py
]
#: Sizes 1e33 apart, around 1e4 and 0; bf16 and fp16 have neither these means nor their neighbours.
_MEAN = np.array([1e4, -30.0, 0.0, 0.5, 1e4], np.float32)
_STD = np.array([3.0, 1e3, 1e-30, 1.0, 100.0], np.float32)


def _policy(name, version):
    """Versions differ in everything, their statistics a little."""
    architecture = _POLICIES[name]
    tensors = some_tensors(architecture, version)
    if name == "normalised":
        tensors |= {"input.mean": _MEAN + version * _STD / 8, "input.std": _STD * (1 + version / 8)}
        tensors |= {"value.std": np.array([300.0 + version], np.float32)}
    floats = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
    return Policy.of(architecture, floats, PolicyVersion(0, version))


def _observations(name, count):
    observation = _POLICIES[name].observation
    leaves = random_observations(observation, count, np.random.default_rng(count))
    if name == "normalised":
        leaves["observation"] = _MEAN + _STD * leaves["observation"]
        leaves["observation"][0] = [-1e30, 1e30, 0.0, 0.0, 0.0]  # beyond the bound
    return leaves


@pytest.mark.parametrize(("name", "chain"), _CASES)
def test_every_version_acts_like_its_graph_and_measures_its_distance(name, chain) -> None:
    visited, observations = _observations(name, 600), _observations(name, 9)
    links = parse_chain(_CHAINS[chain], min_action_prob=0.01)
    architecture, context = _POLICIES[name], Context(Visited(visited), seed=1)
    planned = links.plan(architecture)
    assert planned.architecture.action_spec == architecture.action_spec
    distribution = distribution_of(architecture.action_spec)
    for version in (1, 2):
        policy = _policy(name, version)
        artifact = links.compress(policy, context)
        graph, runtime = artifact.graph, ArtifactRuntime(architecture)
        assert (graph, artifact.chain, artifact.at) == (planned, links.id, policy.at)
        assert list(artifact.tensors) == list(planned.tensors())
        if "preset" in chain:
            assert parts_of(graph.architecture).hidden == (8,)
        assert artifact.original == architecture.digest()
        assert artifact.bytes == sum(tensor.nbytes for tensor in artifact.tensors.values())
        assert artifact.digest == artifact.computed_digest()
        found = runtime.load(artifact).step(observations).parameters
        original = outputs(policy.graph, policy.tensors, observations)[0]
        size = np.abs(original).max()
        assert found.shape == (9, distribution.parameter_count)
        if graph.architecture == architecture and not graph.ranks:  # neither pruned nor distilled
            within = {"int8": 0.15, "bf16": 0.03, "fp16": 5e-3, "fp32": 1e-4}[graph.precision]
            np.testing.assert_allclose(found, original, rtol=0, atol=within * size)
        if graph.precision == "int8":
            exact = IntegerExecutable(graph, artifact.tensors).step(observations).parameters
            np.testing.assert_allclose(found, exact, rtol=0, atol=0.02 * np.abs(exact).max())
        if graph.runtime == "onnx":
            exported = run_onnx(export_onnx(artifact), observations)["parameters"]
            np.testing.assert_allclose(exported, found, rtol=1e-5, atol=1e-5)
        for statistic in {"input.mean", "input.std"} & policy.tensors.keys():
            assert artifact.tensors[statistic].dtype == np.float32
            np.testing.assert_array_equal(artifact.tensors[statistic], policy.tensors[statistic])
        assert list(artifact.probe_observations) == list(architecture.observation)
        back = PolicyGraph.from_dict(graph.to_dict())
        assert back == graph and back.digest() == graph.digest()
        if version == 1:
            original = outputs(policy.graph, policy.tensors, visited)[0]
            found = runtime.load(artifact).step(visited).parameters
            least = distribution.with_min_action_prob(found, 0.01)
            each = distribution.kl(original, least)
            spread = 5 * each.std() / math.sqrt(64) + 1e-6  # of 64 of the 600 observations
            assert artifact.fidelity.observations == 64
            assert artifact.fidelity.kl_mean == pytest.approx(each.mean(), abs=float(spread))


@pytest.mark.parametrize("name", _POLICIES)
def test_the_uncompressed_policy_acts_like_its_layers_one_by_one(name) -> None:
    policy, observations = _policy(name, 1), _observations(name, 9)
    expected = outputs(policy.graph, policy.tensors, observations)[0]
    for runtime in (OnnxRuntime, TorchRuntime):
        found = runtime(_POLICIES[name]).load(policy.tensors).step(observations).parameters
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["choices", "mixed"])
def test_a_student_comes_nearer_to_what_pruning_left(name) -> None:
    prune = {"prune": {"sparsity": 0.5, "compensate": False}}
    student = {"distill": {"first_steps": 400, "learning_rate": 0.01}}
    policy, visited = _policy(name, 1), Visited(_observations(name, 600))
    before, after = (
        parse_chain([prune, *distill, "onnx"]).compress(policy, Context(visited, seed=1)).fidelity
        for distill in ([], [student])
    )
    assert after.kl_mean < 0.5 * before.kl_mean


def test_pixels_that_a_concatenation_reads_are_divided_in_the_graph() -> None:
    assert PolicyGraph(_POLICIES["leaves flattened"]).raw_products() == {}
    raw = PolicyGraph(_POLICIES["leaves"]).raw_products()
    assert {name: (scale.name, scale.factor) for name, scale in raw.items()} == {
        "board:convolutions.0": ("board:input", 1 / 2),
        "camera:convolutions.0": ("camera:input", 1 / 255),
    }
