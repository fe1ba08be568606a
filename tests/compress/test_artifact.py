"""Artifacts: errors found by the digest, the check and the probe, and the policy that then acts."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from aclearn.distributions import distribution_of
from aclearn.rollout import PolicySnapshot, act
from aclearn.types import OBSERVATION, ActionSpec, PolicyOutput, PolicyVersion
from compress import (
    ONNX,
    Artifact,
    ArtifactRuntime,
    CompressorChain,
    Context,
    Fidelity,
    Link,
    OnnxRuntime,
    RefusedArtifact,
    TorchScript,
    check_artifact,
    check_probe,
)
from compress.methods.quantizer import Quantizer, has_vnni
from compress.runtimes.graph_cache import GraphCache
from tests.support.acting import Acting, parameters_of
from tests.support.architectures import altered
from tests.support.contexts import context_of

_SOME = distribution_of(ActionSpec.discrete(4))


def int8():
    return Quantizer("int8", reduced_range=not has_vnni())


CHAINS = {
    "none": [],
    "onnx": [ONNX],
    "torchscript": [TorchScript],
    "fp16": [lambda: Quantizer("fp16"), ONNX],
    "bf16": [lambda: Quantizer("bf16"), ONNX],
    "int8": [int8, ONNX],
}


def make_chain(name, **options):
    chain = CompressorChain(**options)
    for link in CHAINS[name]:
        chain.add(link())
    return chain


def make_artifact(small, name="onnx", seed=1, *, architecture=None, **options):
    architecture = architecture or small.images
    context = context_of(small.observations(architecture, 32), seed=4)
    policy = small.policy(architecture, seed=seed, version=seed)
    return make_chain(name, **options).compress(policy, context)


def sealed(artifact):
    """With a new digest: the error is the maker's, not the transport's."""
    return replace(artifact, digest=artifact.computed_digest())


def flipped(array):
    """The array with one bit of its last byte changed."""
    data = bytearray(np.ascontiguousarray(array).tobytes())
    data[-1] ^= 1
    return np.frombuffer(bytes(data), array.dtype).reshape(array.shape)


@pytest.mark.parametrize("name", ["onnx", "fp16", "int8"])
def test_a_flipped_bit_in_any_tensor_is_noticed(small, name) -> None:
    artifact = make_artifact(small, name)
    check_artifact(artifact, small.images)
    for tensor, value in artifact.tensors.items():
        spoilt = replace(artifact, tensors={**artifact.tensors, tensor: flipped(value)})
        with pytest.raises(RefusedArtifact, match="damaged, its digest differs"):
            check_artifact(spoilt, small.images)


def test_every_other_field_is_in_the_digest_too(small) -> None:
    artifact = make_artifact(small, "int8", batch_sizes=(1, 2))
    changes = {
        "at": [PolicyVersion(1, 1), PolicyVersion(0, 2)],
        "chain": ["int8"],
        "original": ["0" * 16],
        "graph": [replace(artifact.graph, runtime="torch")],
        "tensors": [{n: t for n, t in artifact.tensors.items() if n != "policy.bias"}],
        "probe_observations": [
            {OBSERVATION: flipped(artifact.probe_observations[OBSERVATION])},
            {"other": artifact.probe_observations[OBSERVATION]},
        ],
        "probe_parameters": [flipped(artifact.probe_parameters)],
        "fidelity": [
            replace(artifact.fidelity, **{f.name: getattr(artifact.fidelity, f.name) + 1})
            for f in fields(Fidelity)
        ],
        "latency_ms": [{1: 0.1, 2: 0.2}, {1: artifact.latency_ms[1]}],
        "min_action_prob": [0.01],
    }
    assert set(changes) == {f.name for f in fields(Artifact)} - {"digest"}
    digests = [artifact.computed_digest()]
    for field, values in changes.items():
        digests += [replace(artifact, **{field: value}).computed_digest() for value in values]
    assert len(set(digests)) == len(digests)
    assert digests[0] == artifact.digest and len(artifact.digest) == 32


def test_the_same_numbers_of_another_dtype_shape_or_name_are_another_artifact(small) -> None:
    artifact = make_artifact(small)
    name, value = next(iter(artifact.tensors.items()))
    digests = {
        replace(artifact, tensors={**artifact.tensors, name: other}).computed_digest()
        for other in (value, value.view(np.int32), value.reshape(-1))
    }
    swapped = dict(artifact.tensors)
    swapped["policy.weight"], swapped["hidden.1.weight"] = (
        swapped["hidden.1.weight"],
        swapped["policy.weight"],
    )
    digests.add(replace(artifact, tensors=swapped).computed_digest())
    assert len(digests) == 4
    # order of arrival and memory order do not matter
    other = {n: np.asfortranarray(artifact.tensors[n]) for n in reversed(artifact.tensors)}
    assert replace(artifact, tensors=other).computed_digest() == artifact.digest


def _another_architecture(artifact, small):
    return replace(artifact, original=altered(small.images, hidden=(16, 9)).digest())


def _other_actions(artifact, small):
    architecture = altered(artifact.graph.architecture, actions=4)
    return replace(artifact, graph=artifact.graph.with_architecture(architecture))


def _damaged(artifact, small):
    tensors = {**artifact.tensors, "policy.bias": artifact.tensors["policy.bias"] + 1}
    return replace(artifact, tensors=tensors)


def _missing_tensor(artifact, small):
    tensors = {n: t for n, t in artifact.tensors.items() if n != "hidden.0.bias"}
    return sealed(replace(artifact, tensors=tensors))


def _nan(artifact, small):
    spoilt = artifact.tensors["hidden.0.weight"].copy()
    spoilt[0, 0] = np.nan
    return sealed(replace(artifact, tensors={**artifact.tensors, "hidden.0.weight": spoilt}))


def _another_probe(artifact, small):
    return sealed(replace(artifact, probe_parameters=artifact.probe_parameters + 0.05))


def _nan_probe(artifact, small):
    return sealed(replace(artifact, probe_parameters=artifact.probe_parameters * np.nan))


def _infinite_probe(artifact, small):
    spoilt = artifact.probe_parameters.copy()
    spoilt[0, 0] = np.inf  # it would make any tolerance infinite
    return sealed(replace(artifact, probe_parameters=spoilt))


def _probe_of_another_leaf(artifact, small):
    probes = artifact.probe_observations[OBSERVATION]
    return sealed(replace(artifact, probe_observations={"other": probes}))


def _empty_probe(artifact, small):
    return sealed(
        replace(
            artifact,
            probe_observations={OBSERVATION: artifact.probe_observations[OBSERVATION][:0]},
            probe_parameters=artifact.probe_parameters[:0],
        )
    )


def _too_few_parameters(artifact, small):
    return sealed(replace(artifact, probe_parameters=artifact.probe_parameters[:1]))


def _weights_of_another_version(artifact, small):
    tensors = dict(artifact.tensors)
    tensors["convolutions.0.weight"] = small.tensors(small.images, 9)["convolutions.0.weight"]
    return sealed(replace(artifact, tensors=tensors))


def _no_such_runtime_for_int8(artifact, small):
    # it is undamaged, but torch has no module for it
    made = make_artifact(small, "int8")
    return sealed(replace(made, graph=replace(made.graph, runtime="torch")))


def _no_such_kernel(artifact, small):
    # a kind of layer that another machine's torch may know
    layers = tuple(
        replace(layer, kind="gelu") if layer.kind == "relu" else layer
        for layer in small.images.layers
    )
    graph = artifact.graph.with_architecture(replace(small.images, layers=layers))
    return sealed(replace(artifact, graph=graph))


def _min_action_prob_that_leaves_nothing(artifact, small):
    return sealed(replace(artifact, min_action_prob=0.4))


def _min_action_prob_that_is_no_number(artifact, small):
    return sealed(replace(artifact, min_action_prob=math.nan))


_SPOILS = {
    _another_architecture: "artifact onnx: of architecture .*, expected",
    _other_actions: r"uint8 \(2, 12, 12\) → 4 actions, expected uint8 \(2, 12, 12\) → 3",
    _damaged: "damaged",
    _missing_tensor: "missing or unknown tensors .*hidden.0.bias",
    _nan: "weights.'hidden.0.weight'.: not finite",
    _another_probe: "the probe's parameters differ .* by more than 0.00",
    _nan_probe: "its probe is unusable",
    _infinite_probe: "its probe is unusable",
    _probe_of_another_leaf: "1 leaves in its probe, expected observation",
    _empty_probe: "its probe is unusable",
    _too_few_parameters: "the probe's parameters differ",
    _weights_of_another_version: "the probe's parameters differ",
    _no_such_runtime_for_int8: "cannot be run",
    _no_such_kernel: "cannot be run",
    _min_action_prob_that_leaves_nothing: "min_action_prob 0.4",
    _min_action_prob_that_is_no_number: "min_action_prob nan",
}


@pytest.mark.parametrize("spoil", _SPOILS, ids=lambda spoil: spoil.__name__.strip("_"))
def test_what_is_refused_leaves_the_old_policy_acting(small, spoil) -> None:
    runtime = Acting(ArtifactRuntime(small.images))
    runtime.load(make_artifact(small, "fp16", min_action_prob=0.05))
    observations = small.observations(small.images, 5, seed=3)
    before = runtime.parameters(observations)
    spoilt = spoil(make_artifact(small, seed=2), small)
    with pytest.raises(RefusedArtifact, match=_SPOILS[spoil]):
        runtime.load(spoilt)
    np.testing.assert_allclose(runtime.parameters(observations), before, rtol=1e-5, atol=1e-6)
    # and the next good one is taken
    runtime.load(make_artifact(small, "int8"))
    assert np.abs(runtime.parameters(observations) - before).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "largest"),
    # as shares of the largest logit: half precisions and int8 may round otherwise elsewhere
    [("onnx", 1e-3), ("fp16", 1e-2), ("bf16", 5e-2), ("int8", 5e-2)],
)
def test_probes_may_differ_by_what_another_cpu_rounds_otherwise(small, name, largest) -> None:
    artifact = make_artifact(small, name)
    executable = GraphCache().executable(artifact.graph, artifact.tensors)
    size = float(np.abs(artifact.probe_parameters).max())
    for share, refused in ((0.9, False), (1.1, True)):
        spoilt = artifact.probe_parameters.copy()
        spoilt[1, 2] += share * largest * size
        changed = replace(artifact, probe_parameters=spoilt)
        if refused:
            with pytest.raises(RefusedArtifact, match="does this CPU compute int8 differently"):
                check_probe(changed, executable)
        else:
            check_probe(changed, executable)


@pytest.mark.parametrize("name", ["onnx", "torchscript", "fp16", "bf16", "int8"])
def test_the_probe_sees_old_weights_among_the_new_ones_of_a_policy_that_has_just_begun(
    small, name
) -> None:
    # its head's weights and logits are a hundredth of the later ones
    context, made = context_of(small.observations(small.images, 32), seed=4), {}
    for seed in (1, 2):
        policy = small.policy(small.images, seed=seed, version=seed)
        head = {n: t * np.float32(0.01) for n, t in policy.tensors.items() if "policy" in n}
        young = policy.become(policy.graph, {**policy.tensors, **head})
        made[seed] = make_chain(name).compress(young, context)
    new = made[2]
    assert np.abs(new.probe_parameters).max() < 0.1
    runtime = Acting(ArtifactRuntime(small.images))
    runtime.load(new)
    mixed = [tensor for tensor in new.tensors if tensor.endswith(".weight")]
    for tensor in mixed:
        stale = {**new.tensors, tensor: made[1].tensors[tensor]}
        with pytest.raises(RefusedArtifact, match="the probe's parameters differ"):
            runtime.load(sealed(replace(new, tensors=stale)))
    assert len(mixed) == 5


def test_a_probe_is_two_visited_observations_and_what_the_runtime_said(small) -> None:
    visited = small.observations(small.images, 32)
    artifact = make_artifact(small, "int8")
    probes = artifact.probe_observations[OBSERVATION]
    for observation in probes:
        assert any(np.array_equal(observation, other) for other in visited)
    runtime = Acting(ArtifactRuntime(small.images))
    runtime.load(artifact)
    answer = runtime.parameters(probes)
    np.testing.assert_allclose(answer, artifact.probe_parameters, rtol=1e-5, atol=1e-6)
    assert answer.shape == (2, 3)


@pytest.mark.parametrize("min_action_prob", [0.0, 1e-4, 0.02, 0.12])
def test_no_action_is_less_probable_than_min_action_prob(min_action_prob) -> None:
    logits = np.random.default_rng(2).normal(0, 20, (100, 8)).astype(np.float32)
    logits[0] = 0
    mixed = _SOME.with_min_action_prob(logits, min_action_prob)
    assert mixed.dtype == np.float32 and mixed.shape == logits.shape
    if min_action_prob == 0.0:
        assert mixed is logits
        return
    mixed, logits = mixed.astype(np.float64), logits.astype(np.float64)
    # they are log-probabilities, so the recorded μ is that of the samples
    np.testing.assert_allclose(np.exp(mixed).sum(axis=1), 1.0, atol=1e-5)
    assert (np.exp(mixed) >= min_action_prob * (1 - 1e-5)).all()
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        np.exp(mixed), (1 - 8 * min_action_prob) * p + min_action_prob, rtol=1e-4
    )
    assert (mixed.argmax(axis=1) == logits.argmax(axis=1)).all()


def test_with_masks_the_recorded_parameters_and_probabilities_are_those_of_the_samples() -> None:
    logits = np.tile(np.array([[9.0, 1.0, 0.0, 9.0]], np.float32), (4000, 1))
    executable = SimpleNamespace(step=lambda observations, state: PolicyOutput(logits))
    acting = PolicySnapshot(executable, PolicyVersion(0, 0), min_action_prob=0.05)
    masks = np.tile([[False, True, True, False]], (4000, 1))
    distribution = distribution_of(ActionSpec.discrete(4))
    choice = act(acting, distribution, {}, (), np.random.default_rng(0), masks)
    e = math.e
    expected = np.array([0, 0.9 * e / (1 + e) + 0.05, 0.9 / (1 + e) + 0.05, 0])
    np.testing.assert_allclose(np.exp(choice.parameters[0]), expected, rtol=1e-5)
    taken = expected[choice.actions]
    np.testing.assert_allclose(np.exp(choice.log_prob), taken, rtol=1e-5)
    shares = np.bincount(choice.actions, minlength=4) / 4000
    np.testing.assert_allclose(shares, expected, atol=0.04)


def test_actors_act_with_the_least_probability_of_their_artifact(small) -> None:
    observations = small.observations(small.images, 8)
    runtime = ArtifactRuntime(small.images)
    artifact = make_artifact(small, min_action_prob=0.2)
    executable = runtime.load(artifact)  # the probe is compared without it
    acting = PolicySnapshot(executable, artifact.at, artifact.chain, artifact.min_action_prob)
    choice = act(acting, _SOME, {OBSERVATION: observations}, (), np.random.default_rng(0))
    p = np.exp(parameters_of(runtime.load(make_artifact(small)), observations).astype(np.float64))
    p = 0.4 * p / p.sum(axis=1, keepdims=True) + 0.2  # of three actions
    np.testing.assert_allclose(np.exp(choice.parameters), p, rtol=1e-4)
    taken = p[np.arange(8), choice.actions]
    np.testing.assert_allclose(np.exp(choice.log_prob), taken, rtol=1e-4)


def make_and_run(small, seed, observations):
    runtime = Acting(OnnxRuntime(small.images))
    runtime.load(small.tensors(small.images, seed))
    return runtime.parameters(observations)


def test_bytes_are_those_of_the_tensors(small) -> None:
    sizes = {name: make_artifact(small, name).bytes for name in ("onnx", "bf16", "int8")}
    assert sizes["onnx"] == 2 * sizes["bf16"] > 3 * sizes["int8"]


class Truncating(Link):
    """Cuts hidden layers to a few units, fewer in each version."""

    def __init__(self) -> None:
        self.width = 9

    @property
    def id(self) -> str:
        return "truncate"

    def plan(self, graph):
        return graph.with_architecture(altered(graph.architecture, hidden=(self.width,)))

    def compress(self, policy, context):
        self.width -= 1
        graph = self.plan(policy.graph)
        tensors = {
            name: np.ascontiguousarray(np.resize(policy.tensors["hidden.0.weight"], spec.shape))
            for name, spec in graph.tensors(with_value=True).items()
        }
        return policy.become(graph, tensors)


def test_more_graphs_than_are_kept_still_run_with_their_own_weights(small) -> None:
    link = Truncating()
    chain = CompressorChain().add(link).add(ONNX())
    context, runtime = Context(), Acting(ArtifactRuntime(small.images))
    observations = small.observations(small.images, 3)
    artifacts = [chain.compress(small.policy(small.images, seed=i), context) for i in range(6)]
    assert len({artifact.graph.digest() for artifact in artifacts}) == 6
    for artifact in (*artifacts, *artifacts):
        runtime.load(artifact)
        alone = Acting(ArtifactRuntime(small.images))
        alone.load(artifact)
        np.testing.assert_allclose(
            runtime.parameters(observations), alone.parameters(observations), rtol=1e-5, atol=1e-6
        )
