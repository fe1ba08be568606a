"""Running mean and variance, against numpy over all samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.learning.moments import Moments


def assert_same(one: Moments, other: Moments) -> None:
    for name, value in vars(one).items():
        assert torch.equal(value, getattr(other, name)), name


@given(cuts=st.lists(st.integers(0, 50), max_size=6), seed=st.integers(0, 2**16))
@settings(max_examples=50, deadline=None)
def test_any_split_has_the_moments_of_all_samples(cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    # far from zero, so that a sum of squares would lose every digit of the variance
    samples = rng.normal([1e6, -3.0], [1.0, 1e3], (50, 2)).astype(np.float32)
    moments = Moments.none((2,))
    for part in np.split(samples, sorted(cuts)):
        moments = moments.joined(Moments.of(torch.from_numpy(part)))
    wide = samples.astype(np.float64)
    assert moments.count == 50
    np.testing.assert_allclose(moments.mean, wide.mean(0), rtol=1e-13)
    np.testing.assert_allclose(moments.variance, wide.var(0), rtol=1e-9)


def test_old_samples_are_forgotten_as_weighted_moments_forget_them() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(i, 1 + i, (3 + i, 1)).astype(np.float32) for i in range(5)]
    moments = Moments.none((1,))
    for batch in batches:
        moments = moments.joined(Moments.of(torch.from_numpy(batch)), kept=0.5)
    weights = np.concatenate([[0.5 ** (4 - i)] * len(batch) for i, batch in enumerate(batches)])
    samples = np.concatenate(batches)[:, 0].astype(np.float64)
    mean = np.average(samples, weights=weights)
    assert moments.count == pytest.approx(weights.sum())
    assert moments.mean[0] == pytest.approx(mean)
    variance = np.average((samples - mean) ** 2, weights=weights)
    assert moments.variance[0] == pytest.approx(variance)


@pytest.mark.parametrize("unit", [2.0**-110, 1e-6, 1.0, 2.0**110])
def test_the_deviation_has_the_unit_of_the_samples(unit: float) -> None:
    samples = np.random.default_rng(1).normal(3.0, 0.5, (50, 1)).astype(np.float32)
    scaled = Moments.of(torch.from_numpy(samples * np.float32(unit)))
    expected = samples.astype(np.float64).std() * unit
    assert scaled.std[0] == pytest.approx(expected, rel=1e-6, abs=0.0)


def test_a_constant_has_a_deviation_to_divide_by_and_nothing_finite_is_poisoned() -> None:
    constant = Moments.of(torch.full((4, 1), 0.1))
    # of which float32, with 24 bits, resolves a sixteenth
    assert constant.variance[0] == 0.0
    assert constant.std[0] == float(np.float32(0.1)) * 2.0**-20
    zero = Moments.of(torch.zeros(4, 1)).std
    assert zero.float()[0] > 0.0 and torch.isfinite(1.0 / zero.float())[0]
    for nothing in (torch.empty(0, 1), torch.tensor([[1.0], [float("nan")]])):
        assert_same(constant.joined(Moments.of(nothing)), constant)
    assert Moments.none((1,)).joined(constant, kept=0.99).mean[0] == constant.mean[0]


def test_moments_of_valid_samples_do_not_read_the_others() -> None:
    draw = np.random.default_rng(3)
    samples = draw.normal(1e3, 2.0, (4, 5, 2)).astype(np.float32)
    valid = draw.random((4, 5)) < 0.5
    expected = samples[valid].astype(np.float64)
    samples[~valid] = np.nan
    moments = Moments.masked(torch.from_numpy(samples), torch.from_numpy(valid))
    assert moments.count == len(expected)
    np.testing.assert_allclose(moments.mean, expected.mean(0), rtol=1e-14)
    np.testing.assert_allclose(moments.variance, expected.var(0), rtol=1e-12)
    nothing = Moments.masked(torch.from_numpy(samples), torch.zeros(4, 5, dtype=torch.bool))
    assert_same(moments.joined(nothing), moments)
