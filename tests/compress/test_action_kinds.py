"""Policies with other actions than one choice go through every link."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aclearn.distributions import distribution_of
from aclearn.policies import Architecture, build_architecture
from aclearn.types import OBSERVATION, ActionSpec, ObservationSpec, PolicyVersion
from aclearn.types.action_spec import ActionPart
from compress import Artifact, ArtifactRuntime, Policy, PolicyGraph, parse_chain
from compress.export import export_onnx, run_onnx
from compress.graphs.int8_reference import integer_parameters
from tests.support.contexts import context_of, seen

_BOX = ActionPart(("box",), (2,), "float32", low=(-1.0,) * 2, high=(1.0,) * 2)
_CHOICES = ActionPart(("choices",), (2,), counts=(3, 2), starts=(0, 0))
_KINDS = {
    "choices": ((_CHOICES,), False),
    "box": ((_BOX,), False),
    "box, deviations from observations": ((_BOX,), True),
    "mixed": ((_BOX, _CHOICES), False),
}
_CHAINS: list[list[object]] = [
    ["onnx"],
    ["fuse", {"prune": 0.5}, "int8", "onnx"],
    [{"prune": {"sparsity": 0.5, "importance": "activation"}}, "distill", "onnx"],
    [{"low_rank": 2}, "int8", "onnx"],
    ["bf16", "torchscript"],
    ["fp16", "onnx"],
    [],
]


def _architecture(kind: str) -> Architecture:
    parts, from_observations = _KINDS[kind]
    return build_architecture(
        "small", ObservationSpec.plain((5,), "float32"), ActionSpec.of(parts), (), (16, 8), "tanh",
        std_from_observations=from_observations,
    )  # fmt: skip


def _compressed(kind: str, chain: list[object]) -> tuple[Policy, Artifact, np.ndarray]:
    architecture, rng = _architecture(kind), np.random.default_rng(0)
    tensors = {
        name: rng.normal(0, 0.4, shape).astype(np.float32)
        for name, shape in architecture.tensor_shapes().items()
    }
    policy = Policy.of(architecture, tensors, PolicyVersion(0, 1))
    observations = rng.normal(size=(600, 5)).astype(np.float32)
    links = parse_chain(chain, min_action_prob=0.01)
    assert links.plan(architecture).architecture.action_spec == architecture.action_spec
    return policy, links.compress(policy, context_of(observations, seed=1)), observations


def _by_hand(policy: Policy, observations: np.ndarray) -> np.ndarray:
    x, tensors = observations.astype(np.float64), policy.tensors
    for i in range(2):
        x = np.tanh(x @ tensors[f"hidden.{i}.weight"].T + tensors[f"hidden.{i}.bias"])
    head = "policy_mean" if "policy_mean.weight" in tensors else "policy"
    x = x @ tensors[f"{head}.weight"].T + tensors[f"{head}.bias"]
    log_std = tensors.get("policy.log_std", np.zeros(0))
    return np.concatenate([x, np.tile(log_std, (len(x), 1))], 1)


@pytest.mark.parametrize("chain", _CHAINS, ids=str)
@pytest.mark.parametrize("kind", _KINDS)
def test_an_artifact_acts_like_its_graph_and_measures_its_distance(
    kind: str, chain: list[object]
) -> None:
    policy, artifact, observations = _compressed(kind, chain)
    distribution = distribution_of(policy.graph.architecture.action_spec)
    found = ArtifactRuntime(policy.graph.architecture).load(artifact).step(
        {"observation": observations}
    ).parameters  # fmt: skip
    assert found.shape == (600, distribution.parameter_count)
    original = _by_hand(policy, observations)
    if chain in (["onnx"], []):
        np.testing.assert_allclose(found, original, rtol=1e-4, atol=1e-4)
    if artifact.graph.precision == "int8":
        exact = integer_parameters(artifact.graph, artifact.tensors, {OBSERVATION: observations})
        np.testing.assert_allclose(found, exact, atol=0.02 * np.abs(exact).max())
    if "policy.log_std" in policy.tensors and "distill" not in chain:
        log_std = np.tile(policy.tensors["policy.log_std"], (600, 1))
        np.testing.assert_allclose(found[:, -2:], log_std, rtol=1e-2)
    least = distribution.with_min_action_prob(found, 0.01)
    expected = distribution.kl(original, least).mean()
    # of 64 of the 600 observations
    spread = 5 * distribution.kl(original, least).std() / math.sqrt(64) + 1e-6
    assert artifact.fidelity.observations == 64
    assert artifact.fidelity.kl_mean == pytest.approx(expected, abs=float(spread))
    back = PolicyGraph.from_dict(artifact.graph.to_dict())
    assert back == artifact.graph and back.digest() == artifact.graph.digest()


@pytest.mark.parametrize("kind", _KINDS)
def test_a_student_comes_nearer_to_what_pruning_left(kind: str) -> None:
    before, after = (
        _compressed(kind, [{"prune": {"sparsity": 0.5, "compensate": False}}, *distill, "onnx"])[1]
        for distill in ([], [{"distill": {"first_steps": 400, "learning_rate": 0.01}}])
    )
    assert after.fidelity.kl_mean < 0.5 * before.fidelity.kl_mean


def test_an_exported_model_has_the_deviations() -> None:
    policy, artifact, observations = _compressed("mixed", [{"prune": 0.5}, "int8", "onnx"])
    found = run_onnx(export_onnx(artifact), seen(observations).observations)["parameters"]
    exact = integer_parameters(artifact.graph, artifact.tensors, {OBSERVATION: observations})
    np.testing.assert_allclose(found, exact, atol=0.02 * np.abs(exact).max())
    np.testing.assert_array_equal(found[0, -2:], policy.tensors["policy.log_std"])
