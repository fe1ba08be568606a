"""The trainer's forward pass, rounded as actors round it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.learning import Rounding
from aclearn.learning.rounding import activation
from aclearn.policies import build_architecture
from aclearn.policies.network import PolicyNetwork
from aclearn.types import ObservationSpec
from compress.methods.quantizer import activation_scale, quantise_weight, to_bfloat16, to_float16


def network_of() -> PolicyNetwork:
    architecture = build_architecture(
        "mlp", ObservationSpec.plain((3,), "float32"), 2, (), (8, 8), "tanh"
    )
    return PolicyNetwork(architecture, seed=1)


@pytest.mark.parametrize("per_channel", [False, True])
def test_int8_products_are_those_of_the_compressor_s_numbers(per_channel) -> None:
    rounded, exact = network_of(), network_of()
    Rounding("int8", frozenset({"hidden.1"}), per_channel=per_channel).install(rounded)
    x = torch.randn(50, 8)
    weight = exact.get_parameter("hidden.1.weight").detach().numpy()
    largest = np.abs(weight).max(axis=1 if per_channel else None).astype(np.float32)
    steps = quantise_weight(weight, np.asarray(largest / np.float32(127)))
    column = (largest / 127)[:, None] if per_channel else largest / 127
    scale, zero = activation_scale((float(x.min()), float(x.max())))
    inputs = (np.clip(np.rint(x.numpy() / scale) + zero, 0, 255) - zero) * scale
    expected = inputs @ (steps * column).T + exact.get_parameter("hidden.1.bias").detach().numpy()
    found = rounded.get_submodule("hidden.1")(x)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-4, atol=1e-4)
    others = rounded.get_submodule("hidden.0"), exact.get_submodule("hidden.0")
    y = torch.randn(5, 3)
    assert torch.equal(others[0](y), others[1](y))


@pytest.mark.parametrize(("precision", "store"), [("fp16", to_float16), ("bf16", to_bfloat16)])
def test_half_weights_are_those_that_are_stored(precision, store) -> None:
    rounded = network_of()
    weight = rounded.get_parameter("hidden.1.weight").detach().numpy().copy()
    Rounding(precision, frozenset({"hidden.1"})).install(rounded)
    stored = store(weight)
    if precision == "bf16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    found = rounded.get_submodule("hidden.1")(torch.eye(8)).detach().numpy().T
    np.testing.assert_allclose(found, stored.astype(np.float32), rtol=0, atol=1e-7)


def test_the_gradient_is_that_of_the_rounded_numbers_through_no_rounding() -> None:
    rounded, plain = network_of(), network_of()
    Rounding("int8", frozenset({"hidden.1"})).install(rounded)
    x = torch.randn(50, 8, requires_grad=True)
    rounded.get_submodule("hidden.1")(x).square().sum().backward()
    module = plain.get_submodule("hidden.1")
    weight = module.weight.detach()
    scale = weight.abs().max() / 127
    with torch.no_grad():
        module.weight.copy_((weight / scale).round() * scale)
    y = activation(x.detach()).requires_grad_()
    module(y).square().sum().backward()
    torch.testing.assert_close(
        rounded.get_parameter("hidden.1.weight").grad, module.weight.grad, rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("numbers", [[0.0, 0.0], [2.0, 5.0], [-3.0, -1.0], [-1e-30, 0.0]])
def test_an_activation_of_any_range_stays_finite_and_near(numbers) -> None:
    x = torch.tensor(numbers)
    found = activation(x)
    assert found.isfinite().all()
    assert (found - x).abs().max() <= (x.abs().max() + 1e-6) / 255
