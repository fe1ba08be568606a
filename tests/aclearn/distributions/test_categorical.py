"""Sampled actions: how often each comes, and what probability is recorded for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from aclearn.distributions import greedy_actions, log_probs_of, log_softmax, sample_actions

# 99.9 % quantiles of the chi-square distribution (tables), by degrees of freedom
_CHI_SQUARE_999 = {1: 10.828, 3: 16.266, 5: 20.515}

_logits = npst.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(1, 7)),
    elements=st.floats(-50, 50, width=32),
)


@pytest.mark.parametrize(
    "row", [[0.0, 0.0], [1.0, -1.0, 0.5, 2.0], [3.0, 0.0, 0.0, -2.0, 1.0, 1.5]], ids=str
)
def test_actions_come_as_often_as_softmax_says(row: list[float]) -> None:
    draws = 40_000
    logits = np.tile(np.array(row, np.float32), (draws, 1))
    actions, _ = sample_actions(logits, np.random.default_rng(20))

    weights = [math.exp(logit) for logit in row]
    expected = [draws * weight / sum(weights) for weight in weights]
    observed = np.bincount(actions, minlength=len(row))
    chi_square = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    assert chi_square < _CHI_SQUARE_999[len(row) - 1]


def test_rows_are_drawn_independently() -> None:
    logits = np.zeros((40_000, 2), np.float32)
    actions, _ = sample_actions(logits, np.random.default_rng(21))
    pairs = np.bincount(actions[::2] * 2 + actions[1::2], minlength=4)
    chi_square = float(((pairs - 5_000) ** 2 / 5_000).sum())
    assert chi_square < _CHI_SQUARE_999[3]


def test_the_log_probability_is_that_of_the_action_taken() -> None:
    # softmax of (ln 1, ln 2, ln 5) is (1/8, 2/8, 5/8)
    logits = np.log(np.array([[1, 2, 5]] * 30, np.float32))
    actions, log_probs = sample_actions(logits, np.random.default_rng(22))
    expected = [math.log([1, 2, 5][action] / 8) for action in actions]
    assert set(actions.tolist()) == {0, 1, 2}
    np.testing.assert_allclose(log_probs, expected, rtol=1e-6)
    assert (actions.dtype, log_probs.dtype) == (np.int32, np.float32)


def test_log_softmax_of_two_logits_is_the_logistic_function() -> None:
    result = log_softmax(np.array([[0.0, 3.0]], np.float32))
    expected = [[-math.log1p(math.exp(3)), -math.log1p(math.exp(-3))]]
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(_logits)
def test_probabilities_add_up_to_one(logits: np.ndarray) -> None:
    total = np.exp(log_softmax(logits).astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(total, 1.0, rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(_logits, st.integers(-512, 512), st.integers(0, 2**32 - 1))
def test_adding_a_constant_to_a_row_changes_nothing(
    logits: np.ndarray, constant: int, seed: int
) -> None:
    # multiples of 1/64 so that adding the constant is exact in float32
    logits = np.round(logits * 64) / np.float32(64)
    shifted = logits + np.float32(constant)
    actions, log_probs = sample_actions(logits, np.random.default_rng(seed))
    _, shifted_log_probs = sample_actions(shifted, np.random.default_rng(seed))
    np.testing.assert_array_equal(log_softmax(shifted), log_softmax(logits))
    np.testing.assert_array_equal(log_probs_of(shifted, actions), log_probs)
    assert np.isfinite(shifted_log_probs).all()


@pytest.mark.parametrize("size", [88.0, 1e4, 1e30])
def test_extreme_logits_give_finite_log_probabilities(size: float) -> None:
    logits = np.array([[size, -size, 0], [-size, -size, -size], [size, size, -size]], np.float32)
    for seed in range(20):
        actions, log_probs = sample_actions(logits, np.random.default_rng(seed))
        assert actions[0] == 0
        assert actions[2] in (0, 1)
        np.testing.assert_allclose(log_probs, [0, -math.log(3), -math.log(2)], atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(_logits, st.integers(0, 2**32 - 1))
def test_no_recorded_probability_is_above_one(logits: np.ndarray, seed: int) -> None:
    actions, log_probs = sample_actions(logits, np.random.default_rng(seed))
    assert (log_probs <= 0).all()
    assert ((actions >= 0) & (actions < logits.shape[1])).all()


def test_a_uniform_number_of_zero_is_survived() -> None:
    class Zeros(np.random.Generator):
        def random(self, size, dtype):  # type: ignore[no-untyped-def,override]
            return np.zeros(size, dtype)

    zeros = Zeros(np.random.PCG64(0))
    actions, log_probs = sample_actions(np.zeros((2, 3), np.float32), zeros)
    assert actions.tolist() == [0, 0]
    np.testing.assert_allclose(log_probs, -math.log(3), rtol=1e-6)


def test_one_seed_gives_the_same_actions() -> None:
    logits = np.random.default_rng(23).normal(size=(50, 4)).astype(np.float32)
    first, again = (sample_actions(logits, np.random.default_rng(24))[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_greedy_takes_the_most_probable_action() -> None:
    logits = np.log(np.array([[1, 2, 5], [6, 1, 1]], np.float32))
    actions, log_probs = greedy_actions(logits)
    assert actions.tolist() == [2, 0]
    assert actions.dtype == np.int32
    np.testing.assert_allclose(log_probs, [math.log(5 / 8), math.log(6 / 8)], rtol=1e-6)
