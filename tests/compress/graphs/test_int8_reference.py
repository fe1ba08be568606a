"""int8 graphs against integer arithmetic written as loops: in ONNX Runtime, and in torch."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.policies import Convolution
from compress import Context, LowRank, check_tensors
from compress.graphs.int8_reference import IntegerExecutable
from compress.methods.quantizer import Quantizer, has_vnni
from tests.support.acting import parameters_of
from tests.support.architectures import altered
from tests.support.contexts import context_of
from tests.support.integer_policies import integer_parameters
from tests.support.random_policies import apply, graph_outputs, in_onnx


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("reduced_range", [False, True], ids=["8bit", "7bit"])
@pytest.mark.parametrize("name", ["images", "flat", "residual", "factored residual", "silu images"])
def test_onnx_runtime_and_torch_compute_what_loops_over_integers_say(
    small, name, reduced_range, per_channel
) -> None:
    architecture = getattr(small, name.split()[-1])
    if name.startswith("silu"):  # and convolutions of one pixel, and no hidden layers
        convolutions = (Convolution(7, 3, 3), Convolution(4, 1, 1))
        architecture = altered(
            architecture, activation="silu", convolutions=convolutions, hidden=()
        )
    policy = small.policy(architecture)
    if name.startswith("factored"):
        policy = apply(LowRank(3, convolutions=True), policy, Context())
    architecture = policy.graph.architecture
    link = Quantizer(per_channel=per_channel, reduced_range=reduced_range)
    result = apply(link, policy, context_of(small.observations(architecture, 64, seed=1)))
    check_tensors(result.graph, result.tensors)
    observations = small.observations(architecture, 40, seed=2)
    expected = integer_parameters(result.graph, result.tensors, observations)
    in_torch = parameters_of(IntegerExecutable(result.graph, result.tensors), observations)
    np.testing.assert_allclose(in_torch, expected, rtol=1e-12, atol=1e-12)
    if not (reduced_range or has_vnni()):
        pytest.skip("this processor's int8 products saturate at 16 bits")
    found = parameters_of(in_onnx(result), observations)
    # one step of one number that enters the last layer
    head = {name: result.tensors[f"policy.{name}"] for name in ("input_scale", "weight_scale")}
    assert np.abs(found - expected).max() <= 127 * head["input_scale"] * np.max(
        head["weight_scale"]
    )
    # all are equal except sums between two steps
    assert np.mean(np.abs(found - expected) > 1e-4 * np.abs(expected).max()) < 0.02
    # and the result is near the quantised policy; sums add up earlier clipping
    original, _ = graph_outputs(policy, observations)
    near = 0.15 if "residual" in name else 0.06
    assert np.abs(found - original).max() < near * np.abs(original).max()
