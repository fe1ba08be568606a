"""Policies whose parameters are the values of actions, of one head or of a dueling pair."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.policies import Convolution, build_architecture
from aclearn.types import ObservationSpec
from compress import ArtifactRuntime, OnnxRuntime, check_compressor, parse_chain
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support.acting import Acting
from tests.support.contexts import context_of
from tests.support.layer_walk import outputs

FLAT = ObservationSpec.plain((5,), "float32")
PIXELS = ObservationSpec.plain((2, 9, 8), "uint8", 2)


def architecture(observation: ObservationSpec, critic: str):
    convolutions = (Convolution(4, 3, 2),) if observation is PIXELS else ()
    options = {"separate_value": True, "critic": critic}
    return build_architecture("q", observation, 3, convolutions, (16, 12), "relu", **options)


@pytest.mark.parametrize("observation", [FLAT, PIXELS], ids=["flat", "pixels"])
def test_dueling_heads_give_the_value_and_centred_advantages(small, observation) -> None:
    dueling = architecture(observation, "dueling")
    policy, seen = small.policy(dueling), small.observations(dueling, 7)
    expected, _, _ = outputs(policy.graph, policy.tensors, seen)
    for runtime in (OnnxRuntime, TorchRuntime):
        acting = Acting(runtime(dueling))
        acting.load(policy.tensors)
        np.testing.assert_allclose(acting.parameters(seen), expected, atol=1e-4)


@pytest.mark.parametrize("critic", ["q_values", "dueling"])
@pytest.mark.parametrize("observation", [FLAT, PIXELS], ids=["flat", "pixels"])
@pytest.mark.parametrize("link", [{"prune": 0.5}, {"low_rank": 2}, "int8", "bf16", "fuse"], ids=str)
def test_every_link_but_distillation_keeps_its_contract(observation, critic, link) -> None:
    made = parse_chain([link, "onnx"]).links[0]
    check_compressor(made, architecture(observation, critic))


def test_an_int8_artifact_prefers_the_same_actions(small) -> None:
    dueling = architecture(FLAT, "dueling")
    policy, seen = small.policy(dueling), small.observations(dueling, 256)
    whole, small_one = Acting(OnnxRuntime(dueling)), Acting(ArtifactRuntime(dueling))
    whole.load(policy.tensors)
    small_one.load(parse_chain(["int8", "onnx"]).compress(policy, context_of(seen, seed=3)))
    before, after = whole.parameters(seen), small_one.parameters(seen)
    assert np.mean(before.argmax(1) == after.argmax(1)) > 0.95
