"""Artifacts: errors found by the digest, the check and the probe, and the policy that then acts."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import fields, replace

import numpy as np
import pytest

from aclearn.distributions import distribution_of
from aclearn.rollout import ActInput, PolicySnapshot, act
from aclearn.types import OBSERVATION, ActionSpec, PolicyVersion
from compress import (
    ONNX,
    Artifact,
    ArtifactRuntime,
    CompressorChain,
    Fidelity,
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
    data = np.frombuffer(array.tobytes(), np.uint8).copy()
    data[-1] ^= 1
    return data.view(array.dtype).reshape(array.shape)


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


def _with(artifact, **tensors):
    return replace(artifact, tensors={**artifact.tensors, **tensors})


def _without_a_tensor(artifact, small):
    tensors = {n: t for n, t in artifact.tensors.items() if n != "hidden.0.bias"}
    return replace(artifact, tensors=tensors)


def _with_a_nan(artifact, small):
    spoilt = artifact.tensors["hidden.0.weight"].copy()
    spoilt[0, 0] = np.nan
    return _with(artifact, **{"hidden.0.weight": spoilt})


def _with_an_infinite_probe(artifact, small):
    spoilt = artifact.probe_parameters.copy()
    spoilt[0, 0] = np.inf  # it would make any tolerance infinite
    return replace(artifact, probe_parameters=spoilt)


def _with_a_tensor_of_another_version(artifact, small):
    name = "convolutions.0.weight"
    return _with(artifact, **{name: small.tensors(small.images, 9)[name]})


def _of_another_torch(artifact, small):
    # a kind of layer that another machine's torch may know
    layers = tuple(
        replace(layer, kind="gelu") if layer.kind == "relu" else layer
        for layer in small.images.layers
    )
    architecture = replace(small.images, layers=layers)
    return replace(artifact, graph=artifact.graph.with_architecture(architecture))


def _in_int8_for_torch(artifact, small):
    made = make_artifact(small, "int8")
    return replace(made, graph=replace(made.graph, runtime="torch"))


_SPOILS = {
    "another architecture": (
        lambda a, small: replace(a, original=altered(small.images, hidden=(16, 9)).digest()),
        "artifact onnx: of architecture .*, expected",
    ),
    "other actions": (
        lambda a, small: replace(
            a, graph=a.graph.with_architecture(altered(a.graph.architecture, actions=4))
        ),
        r"uint8 \(2, 12, 12\) → 4 actions, expected uint8 \(2, 12, 12\) → 3",
    ),
    "missing tensor": (_without_a_tensor, "missing or unknown tensors .*hidden.0.bias"),
    "nan": (_with_a_nan, "weights.'hidden.0.weight'.: not finite"),
    "another probe": (
        lambda a, small: replace(a, probe_parameters=a.probe_parameters + 0.05),
        "the probe's parameters differ .* by more than 0.00",
    ),
    "nan probe": (
        lambda a, small: replace(a, probe_parameters=a.probe_parameters * np.nan),
        "its probe is unusable",
    ),
    "infinite probe": (_with_an_infinite_probe, "its probe is unusable"),
    "probe of another leaf": (
        lambda a, small: replace(
            a, probe_observations={"other": a.probe_observations[OBSERVATION]}
        ),
        "1 leaves in its probe, expected observation",
    ),
    "empty probe": (
        lambda a, small: replace(a, probe_parameters=a.probe_parameters[:0]),
        "its probe is unusable",
    ),
    "too few parameters": (
        lambda a, small: replace(a, probe_parameters=a.probe_parameters[:1]),
        "the probe's parameters differ",
    ),
    "another version": (_with_a_tensor_of_another_version, "the probe's parameters differ"),
    "no such runtime": (_in_int8_for_torch, "cannot be run"),
    "no such kernel": (_of_another_torch, "cannot be run"),
    "min_action_prob": (lambda a, small: replace(a, min_action_prob=0.4), "min_action_prob 0.4"),
    "nan prob": (lambda a, small: replace(a, min_action_prob=math.nan), "min_action_prob nan"),
}


@pytest.mark.parametrize("spoilt", _SPOILS)
def test_what_is_refused_leaves_the_old_policy_acting(small, spoilt) -> None:
    runtime = Acting(ArtifactRuntime(small.images))
    runtime.load(make_artifact(small, "fp16", min_action_prob=0.05))
    observations = small.observations(small.images, 5, seed=3)
    before = runtime.parameters(observations)
    spoil, reason = _SPOILS[spoilt]
    with pytest.raises(RefusedArtifact, match=reason):
        runtime.load(sealed(spoil(make_artifact(small, seed=2), small)))
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
        reason = "does this CPU compute int8 differently"
        with pytest.raises(RefusedArtifact, match=reason) if refused else nullcontext():
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


def test_actors_act_with_the_least_probability_of_their_artifact(small) -> None:
    observations = small.observations(small.images, 8)
    runtime = ArtifactRuntime(small.images)
    artifact = make_artifact(small, min_action_prob=0.2)
    executable = runtime.load(artifact)  # the probe is compared without it
    acting = PolicySnapshot(executable, artifact.at, artifact.chain, artifact.min_action_prob)
    masks = np.array([[True, True, True], [True, True, False]] * 4)
    given = ActInput({OBSERVATION: observations}, (), masks)
    choice = act(acting, _SOME, given, np.random.default_rng(0))
    p = np.exp(parameters_of(runtime.load(make_artifact(small)), observations).astype(np.float64))
    p, of = masks * p, masks.sum(axis=1, keepdims=True)  # two or three actions
    p = masks * ((1 - 0.2 * of) * p / p.sum(axis=1, keepdims=True) + 0.2)
    np.testing.assert_allclose(np.exp(choice.parameters), p, rtol=1e-4)
    taken = p[np.arange(8), choice.actions]
    np.testing.assert_allclose(np.exp(choice.log_prob), taken, rtol=1e-4)
