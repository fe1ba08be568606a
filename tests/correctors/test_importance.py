"""The weight of the policy gradient and the diagnostics of off-policy data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from correctors import clipped_fraction, effective_sample_size, importance_weights

RATIOS = torch.tensor([[0.25, 2.0, 1.0], [4.0, 0.5, 1.0]])
ALL = torch.ones(2, 3, dtype=torch.bool)


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


def test_effective_sample_size_is_kishs_formula() -> None:
    # sum 8.75, sum of squares 1/16 + 4 + 1 + 16 + 1/4 + 1 = 22.3125
    size = effective_sample_size(RATIOS.log(), ALL)
    assert size.item() == pytest.approx(8.75**2 / 22.3125, rel=1e-6)


@pytest.mark.parametrize("log_rho", [0.0, -30.0, 15.0])
def test_equal_ratios_are_worth_every_step(log_rho) -> None:
    log_rhos = torch.full((4, 3), log_rho)
    assert effective_sample_size(log_rhos, torch.ones(4, 3).bool()).item() == pytest.approx(12)


def test_one_ratio_that_dwarfs_the_others_is_worth_one_step() -> None:
    log_rhos = torch.tensor([[0.0, 0.0, 500.0, 0.0]])
    assert effective_sample_size(log_rhos, torch.ones(1, 4).bool()).item() == pytest.approx(1)


def test_steps_outside_the_mask_are_not_read() -> None:
    mask = torch.tensor([[True, False, True], [True, True, False]])
    log_rhos = RATIOS.log().masked_fill(~mask, float("nan"))
    # of the masked ratios 0.25, 1, 4, 0.5: sum 5.75, sum of squares 17.3125, one above 1
    assert effective_sample_size(log_rhos, mask).item() == pytest.approx(5.75**2 / 17.3125)
    assert clipped_fraction(log_rhos, 1.0, mask).item() == pytest.approx(0.25)


def test_nothing_masked_or_only_dead_ratios_are_worth_nothing() -> None:
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    assert effective_sample_size(RATIOS.log(), nothing).item() == 0
    assert clipped_fraction(RATIOS.log(), 1.0, nothing).item() == 0
    assert effective_sample_size(torch.full((2, 3), -math.inf), ALL).item() == 0


@pytest.mark.parametrize(
    ("rho_bar", "expected"), [(0.2, 1.0), (1.0, 2 / 6), (3.0, 1 / 6), (5.0, 0.0), (None, 0.0)]
)
def test_clipped_fraction_counts_the_ratios_above_the_bar(rho_bar, expected) -> None:
    fraction = clipped_fraction(RATIOS.log(), rho_bar, ALL)
    assert fraction.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: importance_weights(torch.zeros(0, 3)), r"log_rhos: .*got float32 of shape"),
        (lambda: importance_weights(RATIOS, rho_bar=0.0), r"rho_bar: .*got 0.0"),
        (lambda: effective_sample_size(RATIOS, RATIOS), r"mask: expected bool .*got float32"),
        (lambda: clipped_fraction(RATIOS, 1.0, ALL.T), r"mask: .*got bool of shape \(3, 2\)"),
        (lambda: clipped_fraction(RATIOS, -1.0, ALL), r"rho_bar: .*got -1.0"),
        (lambda: effective_sample_size(RATIOS.half(), ALL), r"log_rhos: .*got float16"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
