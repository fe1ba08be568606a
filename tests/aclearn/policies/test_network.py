"""The torch module against plain numpy and against its architecture's description."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from aclearn.policies import (
    Architecture,
    Convolution,
    Layer,
    ResidualSection,
    build_architecture,
    describe_architecture,
    layer_kinds,
)
from aclearn.policies.network import PolicyNetwork, in_a_row, load_tensors, tensors_of
from aclearn.types import ActionSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart
from tests.support.runtimes import preset

_BOX = ActionSpec.of((ActionPart((), (2,), "float32", low=(-1.0, -1.0), high=(1.0, 1.0)),))

_TINY = build_architecture(
    "tiny",
    ObservationSpec.plain((2, 7, 6), "uint8"),
    3,
    (Convolution(4, 3, 2), Convolution(5, 2, 1)),
    (6,),
)
_FLAT = build_architecture(
    "flat", ObservationSpec.plain((3,), "float32"), 2, (), (5, 4), "tanh", separate_value=True
)

_RESIDUAL = build_architecture(
    "residual",
    ObservationSpec.plain((2, 11, 8), "uint8"),
    3,
    (),
    (6,),
    sections=(ResidualSection(4, (3, 5)), ResidualSection(2, (6,)), ResidualSection(3, ())),
)


def _some_tensors(architecture: Architecture, seed: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(0, 0.5, shape).astype(np.float32)
        for name, shape in architecture.tensor_shapes().items()
    }


@pytest.mark.parametrize("fold_scales", [False, True])
@pytest.mark.parametrize(
    "architecture", [_RESIDUAL, preset("impala-resnet")], ids=["tiny", "whole"]
)
def test_residual_sections_give_what_the_paper_says(
    architecture, fold_scales, reference_resnet
) -> None:
    tensors = {
        name: tensor / np.float32(np.prod(tensor.shape[1:]) ** 0.5)
        for name, tensor in _some_tensors(architecture, 21).items()
    }
    network = PolicyNetwork(architecture, seed=0, fold_scales=fold_scales)
    load_tensors(network, tensors)
    shape = (3, *architecture.observation["observation"].shape)
    observations = np.random.default_rng(22).integers(0, 256, shape, np.uint8)
    with torch.no_grad():
        logits, values = network(torch.from_numpy(observations))
    expected, expected_values = reference_resnet(tensors, observations)
    np.testing.assert_allclose(logits.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values.numpy(), expected_values, rtol=1e-4, atol=1e-5)


def _value_of_pixels(factor: float | None) -> Architecture:
    """`_TINY` with a value that reads the images, scaled as the policy's or by its own factor."""
    [scale] = [layer for layer in _TINY.layers if layer.kind == "scale"]
    [value] = [layer for layer in _TINY.layers if layer.name == "value"]
    others = tuple(layer for layer in _TINY.layers if layer is not value)
    own = [] if factor is None else [replace(scale, name="own", factor=factor)]
    flat = Layer("flat", "flatten", ("own" if own else scale.name,))
    return replace(_TINY, layers=(*others, *own, flat, replace(value, reads=("flat",))))


@pytest.mark.parametrize("fold_scales", [False, True])
def test_one_leaf_may_be_scaled_twice(fold_scales) -> None:
    network = PolicyNetwork(_value_of_pixels(0.25), seed=1, fold_scales=fold_scales)
    images = torch.randint(0, 256, (2, 2, 7, 6), dtype=torch.uint8)
    with torch.no_grad():
        logits, values = network(images)
        expected = 0.25 * images.flatten(1).float() @ network.value.weight[0] + network.value.bias
        policy, _ = PolicyNetwork(_TINY, seed=1)(images)
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(logits, policy)


@pytest.mark.parametrize("case", ["convolution", "convolution and dense", "another class"])
def test_scales_that_are_folded_into_weights_change_no_output_and_no_gradient(
    case, monkeypatch
) -> None:
    # a reader that cannot fold: the images stay scaled
    architecture = _value_of_pixels(None) if case == "convolution and dense" else _TINY
    if case == "another class":
        monkeypatch.setitem(
            layer_kinds.KINDS,
            "convolution",
            lambda layer, given: torch.nn.Conv2d(given[0], layer.units, layer.kernel, layer.stride),
        )
    images = torch.from_numpy(
        np.random.default_rng(3).integers(
            0, 256, (5, *architecture.observation["observation"].shape), np.uint8
        )
    )
    found = {}
    for fold_scales in (False, True):
        network = PolicyNetwork(architecture, seed=1, fold_scales=fold_scales)
        logits, values = network(images)
        assert values is not None
        (logits.square().sum() + values.sum()).backward()
        found[fold_scales] = {
            "logits": logits.detach(),
            "values": values.detach(),
            **{name: each.grad for name, each in network.named_parameters()},
        }
    torch.testing.assert_close(found[True], found[False], rtol=1e-4, atol=1e-5)


def test_images_of_a_part_of_a_batch_stay_channels_last() -> None:
    whole = torch.randint(0, 256, (3, 4, 7, 6, 2), dtype=torch.uint8).movedim(-1, 2)
    part = whole[:, 1:3]
    rows = in_a_row(part)
    assert torch.equal(rows, part.flatten(0, 1))
    assert rows.is_contiguous(memory_format=torch.channels_last)


def test_the_network_does_not_write_into_its_observations() -> None:
    observations = torch.full((2, 2, 7, 6), 200, dtype=torch.uint8)
    PolicyNetwork(_TINY, seed=0)(observations)
    assert bool((observations == 200).all())


@pytest.mark.parametrize("name", ["nature", "impala-resnet"])
def test_the_first_policy_is_near_uniform_and_its_values_are_small(name) -> None:
    network = PolicyNetwork(preset(name), seed=5)
    observations = torch.from_numpy(
        np.random.default_rng(6).integers(0, 256, (4, 4, 84, 84), np.uint8)
    )
    with torch.no_grad():
        logits, values = network(observations)
    assert float((torch.softmax(logits, dim=1) - 1 / 6).abs().max()) < 0.02
    assert float(values.abs().max()) < 0.03


def test_weights_start_orthogonal_and_biases_at_zero() -> None:
    tensors = tensors_of(PolicyNetwork(_FLAT, seed=7))
    for name, gain in [("hidden.1.weight", 2.0), ("policy.weight", 1e-4), ("value.weight", 1e-4)]:
        weight = tensors[name].astype(np.float64)  # no more rows than columns: rows orthogonal
        np.testing.assert_allclose(weight @ weight.T, gain * np.eye(len(weight)), atol=1e-5)
    assert not any(tensor.any() for name, tensor in tensors.items() if name.endswith("bias"))


def test_the_first_deviation_of_box_actions_is_the_configured_one() -> None:
    architecture = describe_architecture(
        "mlp",
        observation=ObservationSpec.plain((3,), "float32"),
        actions=_BOX,
        initial_std=0.25,
    )
    policy, _ = PolicyNetwork(architecture, seed=1)(torch.randn(5, 3))
    np.testing.assert_allclose(np.exp(policy[:, 2:].detach().numpy()), 0.25, rtol=1e-6)


def test_one_seed_gives_the_same_weights_whatever_torch_was_seeded_with() -> None:
    torch.manual_seed(1)
    first = tensors_of(PolicyNetwork(_TINY, seed=8))
    torch.manual_seed(2)
    again, other = (tensors_of(PolicyNetwork(_TINY, seed=seed)) for seed in (8, 9))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["hidden.0.weight"], other["hidden.0.weight"])


def test_tensors_survive_a_channels_last_network_in_the_plain_order() -> None:
    tensors = _some_tensors(_TINY, 10)
    network = PolicyNetwork(_TINY, seed=0)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    load_tensors(network, tensors)
    taken = tensors_of(network)
    for name, tensor in tensors.items():
        assert taken[name].flags.c_contiguous
        np.testing.assert_array_equal(taken[name], tensor)


def test_tensors_are_copies() -> None:
    network = PolicyNetwork(_FLAT, seed=0)
    before = tensors_of(network)
    with torch.no_grad():
        network.policy.bias.fill_(3.0)
    assert not before["policy.bias"].any()


@pytest.mark.parametrize("wrong", ["missing", "unknown", "shape"])
def test_tensors_that_do_not_fit_are_refused_and_change_nothing(wrong: str) -> None:
    network = PolicyNetwork(_FLAT, seed=11)
    before = tensors_of(network)
    tensors = _some_tensors(_FLAT, 12)
    if wrong == "missing":
        del tensors["value.bias"]
    elif wrong == "unknown":
        tensors["extra.weight"] = np.zeros(1, np.float32)
    else:
        tensors["value.weight"] = np.zeros((1, 5), np.float32)
    with pytest.raises(ValueError, match="expected"):
        load_tensors(network, tensors)
    after = tensors_of(network)
    assert all(np.array_equal(before[name], after[name]) for name in before)
