"""int8 graphs against integer arithmetic written as loops: in ONNX Runtime, and in torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aclearn.types import OBSERVATION
from compress import (
    check_tensors,
)
from compress.graphs.int8_reference import integer_parameters as torch_integers
from compress.methods.quantizer import Quantizer, has_vnni
from tests.support.acting import parameters_of
from tests.support.architectures import parts_of
from tests.support.contexts import context_of
from tests.support.integer_policies import integer_parameters
from tests.support.quantisation import quantise, run


def factored(policy):
    """The same policy with its largest layers as products of two."""
    ranks, tensors = [], dict(policy.tensors)
    for name, rank in (
        ("convolutions.1", 4),
        ("sections.0.convolution", 4),
        ("sections.1.blocks.0.first", 2),
        ("sections.1.blocks.0.second", 3),
        ("hidden.0", 6),
    ):
        if f"{name}.weight" not in tensors:
            continue
        weight = tensors.pop(f"{name}.weight")
        u, s, v = np.linalg.svd(weight.reshape(len(weight), -1), full_matrices=False)
        up, down = u[:, :rank] * s[:rank], v[:rank].reshape(rank, *weight.shape[1:])
        tensors[f"{name}.up.weight"] = up.reshape(*up.shape, *(1,) * (weight.ndim - 2))
        tensors[f"{name}.down.weight"] = down
        tensors[f"{name}.up.bias"] = tensors.pop(f"{name}.bias")
        ranks.append((name, rank))
    return policy.become(replace(policy.graph, ranks=tuple(ranks)), tensors)


def prepared(name, small):
    if name.startswith("factored"):
        return factored(small.policy(small.residual if "residual" in name else small.images))
    return small.policy(getattr(small, name))


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("reduced_range", [False, True], ids=["8bit", "7bit"])
@pytest.mark.parametrize("name", ["images", "flat", "residual", "factored", "factored-residual"])
def test_onnx_runtime_computes_what_integers_say(small, name, reduced_range, per_channel) -> None:
    if not (reduced_range or has_vnni()):
        pytest.skip("this processor's int8 products saturate at 16 bits")
    policy = prepared(name, small)
    architecture = policy.graph.architecture
    link = Quantizer(per_channel=per_channel, reduced_range=reduced_range)
    context = context_of(small.observations(architecture, 64, seed=1))
    result = quantise(link, policy, context)
    check_tensors(result.graph, result.tensors)
    observations = small.observations(architecture, 40, seed=2)
    expected = integer_parameters(result.graph, result.tensors, observations)
    logits = parameters_of(run(result), observations)
    # one step of one number that enters the last layer
    last = dict(result.tensors)
    step = float(last["policy.input_scale"] * np.max(last["policy.weight_scale"])) * 127
    assert np.abs(logits - expected).max() <= step
    # all are equal except sums between two steps
    assert np.mean(np.abs(logits - expected) > 1e-4 * np.abs(expected).max()) < 0.02
    # and the result is near the quantised policy
    x = torch.from_numpy(observations)
    from compress.graphs.graph_network import GraphNetwork

    with torch.no_grad():
        original = GraphNetwork(policy.graph).load(policy.tensors)(x)[0].numpy()
    # sums add up earlier clipping
    near = 0.15 if parts_of(architecture).sections else 0.06
    assert np.abs(logits - original).max() < near * np.abs(original).max()


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("name", ["images", "flat", "residual", "factored", "factored-residual"])
def test_torch_says_what_loops_over_int64_say(small, name, per_channel) -> None:
    policy = prepared(name, small)
    architecture = policy.graph.architecture
    context = context_of(small.observations(architecture, 64, seed=1))
    result = quantise(Quantizer(per_channel=per_channel), policy, context)
    observations = small.observations(architecture, 40, seed=2)
    np.testing.assert_allclose(
        torch_integers(result.graph, result.tensors, {OBSERVATION: observations}),
        integer_parameters(result.graph, result.tensors, observations),
        rtol=1e-12,
        atol=1e-12,
    )
