"""Uncompressed policies at work: after every swap the answers are those of the new weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch

from aclearn.policies import Convolution
from aclearn.types import ACTIVATIONS, ARCHITECTURES
from compress import (
    OnnxRuntime,
    PolicyGraph,
    RefusedTensors,
    build_onnx,
    check_tensors,
)
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support.acting import Acting
from tests.support.architectures import altered
from tests.support.random_policies import reference_parameters, some_observations, some_tensors
from tests.support.runtimes import SMALL, preset


@pytest.fixture(params=["onnx", "torch"])
def make(request):
    """Makes a runtime of one kind."""
    kind = OnnxRuntime if request.param == "onnx" else TorchRuntime
    return lambda architecture: Acting(kind(architecture))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_after_every_swap_the_outputs_are_those_of_the_new_weights(make, name) -> None:
    architecture = preset(name)
    runtime = make(architecture)
    observations = some_observations(architecture, 3)
    answers = []
    for seed in (1, 2):
        tensors = some_tensors(architecture, seed)
        runtime.load(tensors)
        expected = reference_parameters(architecture, tensors, observations)
        answer = runtime.parameters(observations)
        assert answer.dtype == np.float32
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-4)
        answers.append(answer)
    # much further apart than the tolerance: outputs of the old weights would fail
    assert np.abs(answers[1] - answers[0]).max() > 0.05


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


@pytest.mark.parametrize("count", [1, 2, 17])
def test_any_number_of_observations_is_answered_row_by_row(make, count) -> None:
    runtime = make(SMALL)
    runtime.load(some_tensors(SMALL, 4))
    observations = some_observations(SMALL, count)
    together = runtime.parameters(observations)
    alone = [runtime.parameters(observations[i : i + 1])[0] for i in range(count)]
    assert together.shape == (count, 6)
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)


def test_the_caller_may_reuse_its_arrays_after_a_swap(make) -> None:
    tensors = some_tensors(SMALL, 5)
    observations = some_observations(SMALL, 2)
    runtime = make(SMALL)
    runtime.load(tensors)
    before = runtime.parameters(observations)
    kept = observations.copy()
    for tensor in tensors.values():
        tensor += 1
    np.testing.assert_allclose(runtime.parameters(observations), before, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(observations, kept)


def test_read_only_observations_of_a_message_are_accepted(make) -> None:
    runtime = make(SMALL)
    tensors = some_tensors(SMALL, 6)
    read_only = {name: np.frombuffer(t.tobytes(), np.float32) for name, t in tensors.items()}
    runtime.load({name: t.reshape(tensors[name].shape) for name, t in read_only.items()})
    observations = some_observations(SMALL, 2)
    view = np.frombuffer(observations.tobytes(), np.uint8).reshape(observations.shape)
    np.testing.assert_allclose(
        runtime.parameters(view), runtime.parameters(observations), rtol=1e-5, atol=1e-6
    )


def test_weights_that_are_not_contiguous_are_taken_as_they_read(make) -> None:
    tensors = some_tensors(SMALL, 7)
    runtime = make(SMALL)
    runtime.load(tensors)
    observations = some_observations(SMALL, 2)
    before = runtime.parameters(observations)
    runtime.load({name: np.asfortranarray(tensor) for name, tensor in tensors.items()})
    np.testing.assert_allclose(runtime.parameters(observations), before, rtol=1e-6)


def _missing(tensors):
    del tensors["hidden.0.bias"]


def _unknown(tensors):
    tensors["hidden.1.bias"] = tensors["hidden.0.bias"]


def _wrong_shape(tensors):
    tensors["hidden.0.weight"] = tensors["hidden.0.weight"].T.copy()


def _wrong_dtype(tensors):
    tensors["policy.bias"] = tensors["policy.bias"].astype(np.float64)


def _nan(tensors):
    tensors["convolutions.1.weight"][1, 2, 3, 0] = np.nan


def _infinite(tensors):
    tensors["policy.weight"][0, 0] = np.inf


def _both_infinities(tensors):
    tensors["policy.weight"][0, 0] = np.inf
    tensors["policy.weight"][1, 1] = -np.inf


def _nan_in_the_value_head(tensors):
    tensors["value.bias"][0] = np.nan


_SPOILS = {
    _missing: "missing or unknown tensors .'hidden.0.bias'.",
    _unknown: "missing or unknown tensors .'hidden.1.bias'.",
    _wrong_shape: r"weights.'hidden.0.weight'.: expected float32 \(32, 324\), got .*\(324, 32\)",
    _wrong_dtype: r"weights.'policy.bias'.: expected float32 \(6,\), got float64",
    _nan: "weights.'convolutions.1.weight'.: not finite",
    _infinite: "weights.'policy.weight'.: not finite",
    _both_infinities: "weights.'policy.weight'.: not finite",
    _nan_in_the_value_head: "weights.'value.bias'.: not finite",
}


@pytest.mark.parametrize("spoil", _SPOILS, ids=lambda spoil: spoil.__name__.strip("_"))
def test_weights_that_do_not_fit_are_refused_and_the_old_policy_stays(make, spoil) -> None:
    runtime = make(SMALL)
    runtime.load(some_tensors(SMALL, 8))
    observations = some_observations(SMALL, 2)
    before = runtime.parameters(observations)
    tensors = some_tensors(SMALL, 9)
    spoil(tensors)
    with pytest.raises(RefusedTensors, match=_SPOILS[spoil]):
        runtime.load(tensors)
    np.testing.assert_allclose(runtime.parameters(observations), before, rtol=1e-5, atol=1e-6)


def test_large_finite_weights_are_not_taken_for_infinite_ones() -> None:
    # 192 weights of 3e38: their sum is beyond float32
    tensors = some_tensors(SMALL, 10)
    tensors["policy.weight"][...] = 3e38
    check_tensors(PolicyGraph(SMALL), tensors, with_value=True)
    assert float(tensors["policy.weight"][0, 0]) * 192 > float(np.finfo(np.float32).max)


def test_bf16_answers_are_close_to_those_of_fp32() -> None:
    tensors = some_tensors(SMALL, 11)
    observations = some_observations(SMALL, 4)
    runtime = Acting(TorchRuntime(SMALL, amp_dtype=torch.bfloat16))
    runtime.load(tensors)
    answer = runtime.parameters(observations)
    expected = reference_parameters(SMALL, tensors, observations)
    assert answer.dtype == np.float32
    error = np.abs(answer - expected).max()
    assert 0 < error < 0.1  # bf16 keeps 8 bits: not exact, but close


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_graph_is_valid_and_carries_no_weights(name) -> None:
    architecture = preset(name)
    serialised = build_onnx(PolicyGraph(architecture))
    model = onnx.load_model_from_string(serialised)
    external = {
        tensor.name: tuple(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    }
    shapes = architecture.tensor_shapes()
    assert external == {n: s for n, s in shapes.items() if not n.startswith("value")}
    assert len(serialised) < 8_192
    inlined = [t for t in model.graph.initializer if t.name not in external]
    assert [t.name for t in inlined] == ([] if name == "mlp" else ["input.factor"])
    for tensor in model.graph.initializer:  # the checker wants the weights themselves
        if tensor.name in external:
            zeros = np.zeros(external[tensor.name], np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(zeros, tensor.name))
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("name", ["impala-resnet", "small"])
def test_residual_networks_give_what_the_paper_says_after_every_swap(
    make, name, small, reference_resnet
) -> None:
    architecture = small.residual if name == "small" else preset(name)
    architecture = altered(architecture, hidden=(24,))
    runtime, observations = make(architecture), some_observations(architecture, 2)
    for seed in (1, 2):
        tensors = some_tensors(architecture, seed)
        runtime.load(tensors)
        expected, _ = reference_resnet(tensors, observations)
        np.testing.assert_allclose(runtime.parameters(observations), expected, rtol=1e-4, atol=1e-4)


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
    tensors = some_tensors(architecture, 12)
    observations = some_observations(architecture, 2)
    runtime = make(architecture)
    runtime.load(tensors)
    expected = reference_parameters(architecture, tensors, observations)
    np.testing.assert_allclose(runtime.parameters(observations), expected, rtol=1e-4, atol=1e-4)


def test_an_architecture_without_hidden_layers_and_with_other_activations_runs() -> None:
    # tanh after convolutions, heads straight on the flattened image
    architecture = altered(SMALL, hidden=(), activation="tanh")
    tensors = some_tensors(architecture, 12)
    observations = some_observations(architecture, 2)
    runtime = Acting(OnnxRuntime(architecture))
    runtime.load(tensors)
    expected = reference_parameters(architecture, tensors, observations)
    np.testing.assert_allclose(runtime.parameters(observations), expected, rtol=1e-4, atol=1e-4)
