"""Uncompressed policies at work: after every swap the answers are those of the new weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.policies import Convolution
from aclearn.types import ACTIVATIONS
from compress import OnnxRuntime, RefusedTensors
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support.acting import Acting
from tests.support.architectures import altered
from tests.support.random_policies import reference_parameters, some_observations, some_tensors
from tests.support.runtimes import SMALL


@pytest.fixture(params=["onnx", "torch"])
def make(request):
    """Makes a runtime of one kind."""
    kind = OnnxRuntime if request.param == "onnx" else TorchRuntime
    return lambda architecture: Acting(kind(architecture))


@pytest.mark.parametrize("changed", SMALL.tensor_shapes())
def test_a_swap_replaces_each_single_tensor(make, changed) -> None:
    # the layout pass of ONNX Runtime once kept old convolution weights
    tensors = some_tensors(SMALL, 3)
    observations = some_observations(SMALL, 2)
    runtime = make(SMALL)
    runtime.load(tensors)
    before = runtime.parameters(observations)
    runtime.load({**tensors, changed: tensors[changed] + np.float32(0.25)})
    difference = float(np.abs(runtime.parameters(observations) - before).max())
    assert (difference > 1e-3) == (not changed.startswith("value"))


def test_arrays_of_any_kind_are_taken_and_may_be_reused_after_a_swap(make) -> None:
    tensors, observations = some_tensors(SMALL, 5), some_observations(SMALL, 2)
    runtime = make(SMALL)
    runtime.load(tensors)
    expected = runtime.parameters(observations)
    views = {  # as of a message
        name: np.frombuffer(tensor.tobytes(), np.float32).reshape(tensor.shape)
        for name, tensor in tensors.items()
    }
    shown = np.frombuffer(observations.tobytes(), np.uint8).reshape(observations.shape)
    for given in (views, {name: np.asfortranarray(tensor) for name, tensor in tensors.items()}):
        runtime.load(given)
        np.testing.assert_allclose(runtime.parameters(shown), expected, rtol=1e-5, atol=1e-6)
    runtime.load(tensors)
    for tensor in tensors.values():
        tensor += 1
    np.testing.assert_allclose(runtime.parameters(shown), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(shown, observations)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden.0.bias": None}, "missing or unknown tensors .'hidden.0.bias'."),
        ({"hidden.1.bias": np.zeros(32, "f")}, "missing or unknown tensors .'hidden.1.bias'."),
        ({"hidden.0.weight": np.zeros((324, 32), "f")}, r"expected float32 \(32, 324\), got .*324"),
        ({"policy.bias": np.zeros(6)}, r"weights.'policy.bias'.: expected float32 .* got float64"),
        ({"policy.bias": np.full(6, np.nan, "f")}, "weights.'policy.bias'.: not finite"),
        ({"value.bias": np.full(1, np.inf, "f")}, "weights.'value.bias'.: not finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_the_old_policy_stays(
    make, changes, reason
) -> None:
    runtime = make(SMALL)
    runtime.load(some_tensors(SMALL, 8))
    observations = some_observations(SMALL, 2)
    before = runtime.parameters(observations)
    tensors = some_tensors(SMALL, 9) | changes
    with pytest.raises(RefusedTensors, match=reason):
        runtime.load({name: tensor for name, tensor in tensors.items() if tensor is not None})
    np.testing.assert_allclose(runtime.parameters(observations), before, rtol=1e-5, atol=1e-6)


def test_bf16_answers_are_close_to_those_of_fp32() -> None:
    tensors, observations = some_tensors(SMALL, 11), some_observations(SMALL, 4)
    runtime = Acting(TorchRuntime(SMALL, amp_dtype=torch.bfloat16))
    runtime.load(tensors)
    answer = runtime.parameters(observations)
    assert answer.dtype == np.float32
    error = np.abs(answer - reference_parameters(SMALL, tensors, observations)).max()
    assert 0 < error < 0.1  # bf16 keeps 8 bits: not exact, but close


@pytest.mark.parametrize("hidden", [(), (9,)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_residual_sections_after_convolutions_and_with_other_activations_run(
    make, small, activation, hidden
) -> None:
    architecture = altered(
        small.residual,
        convolutions=(Convolution(4, 3, 1),),
        activation=activation,
        hidden=hidden,
    )
    make(architecture).load(some_tensors(architecture, 12))  # compared with torch: conftest.py
