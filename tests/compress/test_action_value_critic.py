"""Policies with action values: what acts of them is what acts of one with a V head, or alone."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.policies import build_architecture
from aclearn.types import ActionSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart
from compress import (
    ArtifactRuntime,
    ChainError,
    OnnxRuntime,
    check_compressor,
    parse_chain,
)
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support.acting import Acting
from tests.support.architectures import altered
from tests.support.contexts import context_of

_LINKS = [
    {"prune": 0.5},
    {"prune": {"sparsity": 0.5, "importance": "activation"}},
    {"low_rank": 2},
    "int8",
    "bf16",
    "fuse",
]


def _with_q(small, architecture):
    """The same policy with a V and with a Q head."""
    other = altered(architecture, critic="q")
    tensors = small.tensors(other, 1)
    v = small.policy(architecture)
    shared = {name: tensors.get(name, tensor) for name, tensor in v.tensors.items()}
    return v.become(v.graph, shared), small.policy(other)


@pytest.mark.parametrize("link", _LINKS, ids=str)
def test_every_link_but_distillation_keeps_its_contract(architecture, link) -> None:
    made = parse_chain([link, "onnx"]).links[0]
    check_compressor(made, altered(architecture, critic="q"))


@pytest.mark.parametrize("link", ["int8", "bf16", {"low_rank": 2}, None], ids=str)
def test_the_artifact_acts_as_that_of_the_same_policy_with_a_v_head(
    small, architecture, link
) -> None:
    observations = small.observations(architecture, 64)
    answers = []
    for policy in _with_q(small, architecture):
        chain = parse_chain([*([link] if link else []), "onnx"])
        artifact = chain.compress(policy, context_of(observations, seed=3))
        acting = Acting(ArtifactRuntime(policy.graph.architecture))
        acting.load(artifact)
        answers.append(acting.parameters(observations[:8]))
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("runtime", [OnnxRuntime, TorchRuntime])
def test_the_uncompressed_policy_acts_as_that_with_a_v_head(small, architecture, runtime) -> None:
    observations = small.observations(architecture, 8)
    answers = []
    for policy in _with_q(small, architecture):
        acting = Acting(runtime(policy.graph.architecture))
        acting.load(policy.tensors)
        answers.append(acting.parameters(observations))
    np.testing.assert_array_equal(*answers)


def test_distillation_refuses_a_q_head_by_name(small) -> None:
    with pytest.raises(ChainError, match=r"distill: .* Q head; .* set policy\.critic: v"):
        parse_chain(["distill", "onnx"]).plan(altered(small.flat, critic="q"))


def test_a_policy_that_acts_without_its_critic_of_actions_is_distilled_and_pruned() -> None:
    box = ActionPart(shape=(2,), dtype="float32", low=(-1.0,) * 2, high=(1.0,) * 2)
    architecture = build_architecture(
        "own",
        ObservationSpec.plain((3,), "float32"),
        ActionSpec.of((box,), squash=True),
        hidden=(16, 16),
        critic="actions",
        std_from_observations=True,
    ).acting()
    for item in ({"distill": {"student": "mlp", "hidden": [4]}}, "distill", {"prune": 0.5}):
        check_compressor(parse_chain([item]).links[0], architecture)
