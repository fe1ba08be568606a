"""The weight of the policy gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from correctors import importance_weights

RATIOS = torch.tensor([[0.25, 2.0, 1.0], [4.0, 0.5, 1.0]])


@pytest.mark.parametrize(
    ("rho_bar", "expected"),
    [
        (1.0, [[0.25, 1.0, 1.0], [1.0, 0.5, 1.0]]),
        (2.0, [[0.25, 2.0, 1.0], [2.0, 0.5, 1.0]]),
        (None, [[0.25, 2.0, 1.0], [4.0, 0.5, 1.0]]),
    ],
)
def test_weights_are_the_ratios_clipped_from_above_only(rho_bar, expected) -> None:
    weights = importance_weights(RATIOS.log(), rho_bar=rho_bar)
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-6)


def test_weights_stay_finite_and_carry_no_gradient() -> None:
    log_rhos = torch.tensor([[1e4, math.inf, -math.inf]], requires_grad=True)
    weights = importance_weights(log_rhos, rho_bar=None)
    np.testing.assert_allclose(weights.numpy(), [[math.exp(20), math.exp(20), 0.0]], rtol=1e-5)
    assert not weights.requires_grad


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: importance_weights(torch.zeros(0, 3)), r"log_rhos: .*got float32 of shape"),
        (lambda: importance_weights(RATIOS, rho_bar=0.0), r"rho_bar: .*got 0.0"),
        (lambda: importance_weights(RATIOS.half()), r"log_rhos: .*got float16"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
