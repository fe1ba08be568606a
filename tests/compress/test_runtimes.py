"""Both runtimes: the new weights' outputs after each swap, and the old policy after a refusal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch

from aclearn.policies import ARCHITECTURES, describe_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from compress import OnnxPolicy, RefusedTensors, build_graph, check_tensors
from compress.torch_runtime import TorchPolicy


def preset(name):
    """The preset for 84×84 images, the mlp for flat observations."""
    if name == "mlp":
        return describe_architecture(
            name, observation_shape=(4,), observation_dtype="float32", actions=2
        )
    return describe_architecture(
        name, observation_shape=(4, 84, 84), observation_dtype="uint8", actions=6
    )


SMALL = preset("accerl-net3")


def some_tensors(architecture, seed):
    """Weights of a size that keeps activations near 1, biases that matter."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(0, (1 / np.prod(shape[1:])) ** 0.5, shape).astype(np.float32)
        if len(shape) > 1
        else rng.normal(0, 0.5, shape).astype(np.float32)
        for name, shape in architecture.tensor_shapes().items()
    }


def some_observations(architecture, count, seed=0):
    rng = np.random.default_rng(seed)
    shape = (count, *architecture.observation_shape)
    if architecture.observation_dtype == "uint8":
        return rng.integers(0, 256, shape, np.uint8)
    return rng.normal(size=shape).astype(np.float32)


def reference_logits(architecture, tensors, observations):
    """What the torch network says, in float64: independent of kernels and memory layouts."""
    network = PolicyNetwork(architecture, seed=0)
    load_tensors(network, tensors)
    network = network.double()
    with torch.no_grad():
        x = torch.from_numpy(observations)
        if architecture.observation_dtype == "uint8":
            # the module divides by 255 itself; leave only that to it
            network._scale = None
            x = x.double() / 255.0
        return network(x.double())[0].numpy()


@pytest.fixture(params=["onnx", "torch"])
def make(request):
    """Makes a runtime of one kind."""
    return OnnxPolicy if request.param == "onnx" else TorchPolicy


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_after_every_swap_the_outputs_are_those_of_the_new_weights(make, name) -> None:
    architecture = preset(name)
    runtime = make(architecture)
    observations = some_observations(architecture, 3)
    answers = []
    for seed in (1, 2):
        tensors = some_tensors(architecture, seed)
        runtime.swap(tensors)
        expected = reference_logits(architecture, tensors, observations)
        answer = runtime.logits(observations)
        assert answer.dtype == np.float32
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-4)
        answers.append(answer)
    # far further apart than the tolerance: outputs of the old weights could not have passed
    assert np.abs(answers[1] - answers[0]).max() > 0.05


@pytest.mark.parametrize("changed", SMALL.tensor_shapes())
def test_a_swap_replaces_each_single_tensor(make, changed) -> None:
    # the layout pass of ONNX Runtime once kept old convolution weights
    tensors = some_tensors(SMALL, 3)
    observations = some_observations(SMALL, 2)
    runtime = make(SMALL)
    runtime.swap(tensors)
    before = runtime.logits(observations)
    runtime.swap({**tensors, changed: tensors[changed] + np.float32(0.25)})
    difference = float(np.abs(runtime.logits(observations) - before).max())
    assert (difference > 1e-3) == (not changed.startswith("value"))


@pytest.mark.parametrize("count", [1, 2, 17])
def test_any_number_of_observations_is_answered_row_by_row(make, count) -> None:
    runtime = make(SMALL)
    runtime.swap(some_tensors(SMALL, 4))
    observations = some_observations(SMALL, count)
    together = runtime.logits(observations)
    alone = [runtime.logits(observations[i : i + 1])[0] for i in range(count)]
    assert together.shape == (count, 6)
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)


def test_the_caller_may_reuse_its_arrays_after_a_swap(make) -> None:
    tensors = some_tensors(SMALL, 5)
    observations = some_observations(SMALL, 2)
    runtime = make(SMALL)
    runtime.swap(tensors)
    before = runtime.logits(observations)
    kept = observations.copy()
    for tensor in tensors.values():
        tensor += 1
    np.testing.assert_array_equal(runtime.logits(observations), before)
    np.testing.assert_array_equal(observations, kept)


def test_read_only_observations_of_a_message_are_accepted(make) -> None:
    runtime = make(SMALL)
    tensors = some_tensors(SMALL, 6)
    read_only = {name: np.frombuffer(t.tobytes(), np.float32) for name, t in tensors.items()}
    runtime.swap({name: t.reshape(tensors[name].shape) for name, t in read_only.items()})
    observations = some_observations(SMALL, 2)
    view = np.frombuffer(observations.tobytes(), np.uint8).reshape(observations.shape)
    np.testing.assert_array_equal(runtime.logits(view), runtime.logits(observations))


def test_weights_that_are_not_contiguous_are_taken_as_they_read(make) -> None:
    tensors = some_tensors(SMALL, 7)
    runtime = make(SMALL)
    runtime.swap(tensors)
    observations = some_observations(SMALL, 2)
    before = runtime.logits(observations)
    runtime.swap({name: np.asfortranarray(tensor) for name, tensor in tensors.items()})
    np.testing.assert_allclose(runtime.logits(observations), before, rtol=1e-6)


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
    runtime.swap(some_tensors(SMALL, 8))
    observations = some_observations(SMALL, 2)
    before = runtime.logits(observations)
    tensors = some_tensors(SMALL, 9)
    spoil(tensors)
    with pytest.raises(RefusedTensors, match=_SPOILS[spoil]):
        runtime.swap(tensors)
    np.testing.assert_array_equal(runtime.logits(observations), before)


def test_large_finite_weights_are_not_taken_for_infinite_ones() -> None:
    # 192 weights of 3e38: their sum is beyond float32
    tensors = some_tensors(SMALL, 10)
    tensors["policy.weight"][...] = 3e38
    check_tensors(SMALL, tensors)
    assert float(tensors["policy.weight"][0, 0]) * 192 > float(np.finfo(np.float32).max)


def test_there_are_no_answers_before_the_first_weights(make) -> None:
    runtime = make(SMALL)
    with pytest.raises(RuntimeError, match="call swap first"):
        runtime.logits(some_observations(SMALL, 1))


def test_bf16_answers_are_close_to_those_of_fp32() -> None:
    tensors = some_tensors(SMALL, 11)
    observations = some_observations(SMALL, 4)
    runtime = TorchPolicy(SMALL, amp_dtype=torch.bfloat16)
    runtime.swap(tensors)
    answer = runtime.logits(observations)
    expected = reference_logits(SMALL, tensors, observations)
    assert answer.dtype == np.float32
    error = np.abs(answer - expected).max()
    assert 0 < error < 0.1  # bf16 keeps 8 bits: not exact, but close


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_graph_is_valid_and_carries_no_weights(name) -> None:
    architecture = preset(name)
    serialised = build_graph(architecture)
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
    assert [t.name for t in inlined] == ([] if name == "mlp" else ["scale"])
    for tensor in model.graph.initializer:  # the checker wants the weights themselves
        if tensor.name in external:
            zeros = np.zeros(external[tensor.name], np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(zeros, tensor.name))
    onnx.checker.check_model(model, full_check=True)


def test_an_architecture_without_hidden_layers_and_with_other_activations_runs() -> None:
    # tanh after convolutions, heads straight on the flattened image
    architecture = replace(SMALL, hidden=(), activation="tanh")
    tensors = some_tensors(architecture, 12)
    observations = some_observations(architecture, 2)
    runtime = OnnxPolicy(architecture)
    runtime.swap(tensors)
    expected = reference_logits(architecture, tensors, observations)
    np.testing.assert_allclose(runtime.logits(observations), expected, rtol=1e-4, atol=1e-4)
