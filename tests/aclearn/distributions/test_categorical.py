"""Sampled actions: their frequencies, and their recorded probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from aclearn.distributions import distribution_of, torch_distribution_of
from aclearn.distributions.categorical import log_softmax
from aclearn.types import ActionSpec

_PLAIN = distribution_of(ActionSpec.discrete(4))


_logits = npst.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(1, 7)),
    elements=st.floats(-50, 50, width=32),
)


@pytest.mark.parametrize("size", [88.0, 1e4, 1e30])
def test_extreme_logits_give_finite_log_probabilities(size: float) -> None:
    logits = np.array([[size, -size, 0], [-size, -size, -size], [size, size, -size]], np.float32)
    for seed in range(20):
        actions, log_probs = _PLAIN.sample(logits, np.random.default_rng(seed))
        assert actions[0] == 0
        assert actions[2] in (0, 1)
        np.testing.assert_allclose(log_probs, [0, -math.log(3), -math.log(2)], atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(_logits, st.integers(0, 2**32 - 1))
def test_no_recorded_probability_is_above_one(logits: np.ndarray, seed: int) -> None:
    actions, log_probs = _PLAIN.sample(logits, np.random.default_rng(seed))
    assert (log_probs <= 0).all()
    assert ((actions >= 0) & (actions < logits.shape[1])).all()


def test_a_uniform_number_of_zero_is_survived() -> None:
    class Zeros(np.random.Generator):
        def random(self, size, dtype):  # type: ignore[no-untyped-def,override]
            return np.zeros(size, dtype)

    zeros = Zeros(np.random.PCG64(0))
    actions, log_probs = _PLAIN.sample(np.zeros((2, 3), np.float32), zeros)
    assert actions.tolist() == [0, 0]
    np.testing.assert_allclose(log_probs, -math.log(3), rtol=1e-6)


def test_samples_are_those_of_the_gumbel_max_trick() -> None:
    logits = np.random.default_rng(0).normal(0, 3, (500, 6)).astype(np.float32)
    uniform = np.random.default_rng(1).random(logits.shape, dtype=np.float32)
    expected = (logits - np.log(-np.log(uniform))).argmax(axis=1)
    actions, log_probs = _PLAIN.sample(logits, np.random.default_rng(1))
    np.testing.assert_array_equal(actions, expected)
    np.testing.assert_array_equal(log_probs, _PLAIN.log_prob(logits, actions))
    assert (actions.dtype, log_probs.dtype) == (np.int32, np.float32)
    modes = _PLAIN.mode(np.log(np.array([[1, 2, 5], [6, 1, 1]], np.float32)))
    assert (modes.tolist(), modes.dtype) == ([2, 0], np.int32)


def _slow_log_p(row: np.ndarray, mask: np.ndarray | None = None) -> list[float]:
    """Log-probabilities by `math`, −∞ of masked actions."""
    possible = [True] * len(row) if mask is None else mask.tolist()
    most = max(x for x, ok in zip(row.tolist(), possible, strict=True) if ok)
    total = sum(math.exp(x - most) for x, ok in zip(row.tolist(), possible, strict=True) if ok)
    return [
        x - most - math.log(total) if ok else -math.inf
        for x, ok in zip(row.tolist(), possible, strict=True)
    ]


_SIZES = [0.1, 3.0, 200.0]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", _SIZES)
def test_entropy_kl_and_log_probabilities_are_those_of_slow_sums(size: float, masked: bool) -> None:
    rng = np.random.default_rng(2)
    p, q = rng.normal(0, size, (2, 40, 5)).astype(np.float32)
    mask = rng.random((40, 5)) < 0.5
    mask[:, 3] = True
    mask = mask if masked else None
    actions = np.full(40, 3)
    of_p, of_q = _PLAIN.mask(p, mask), _PLAIN.mask(q, mask)
    torch_kind = torch_distribution_of(ActionSpec.discrete(5))
    torch_mask = None if mask is None else torch.from_numpy(mask)
    in_torch = [torch_kind(torch.from_numpy(x), torch_mask) for x in (p, q)]
    entropies, divergences, logs = [], [], []
    for b in range(40):
        row_mask = None if mask is None else mask[b]
        log_p, log_q = _slow_log_p(p[b], row_mask), _slow_log_p(q[b], row_mask)
        taken = [(x, y) for x, y in zip(log_p, log_q, strict=True) if math.exp(x) > 0.0]
        entropies.append(-sum(math.exp(x) * x for x, _ in taken))
        divergences.append(sum(math.exp(x) * (x - y) for x, y in taken))
        logs.append(log_p[3])
    np.testing.assert_allclose(_PLAIN.entropy(of_p), entropies, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(_PLAIN.kl(of_p, of_q), divergences, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(_PLAIN.log_prob(of_p, actions), logs, rtol=1e-5, atol=1e-6)
    within = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(in_torch[0].entropy(), entropies, **within)
    np.testing.assert_allclose(in_torch[0].kl(in_torch[1]), divergences, **within)
    np.testing.assert_allclose(in_torch[0].log_prob(torch.from_numpy(actions)), logs, **within)


def test_masked_actions_have_no_probability_and_all_numbers_stay_finite() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 10, (20_000, 6)).astype(np.float32)
    mask = rng.random(logits.shape) < 0.4
    mask[np.arange(len(mask)), rng.integers(6, size=len(mask))] = True
    masked = _PLAIN.mask(logits, mask)
    actions, log_probs = _PLAIN.sample(masked, rng)
    rows = np.arange(len(actions))
    assert mask[rows, actions].all()
    assert mask[rows, _PLAIN.mode(masked)].all()
    np.testing.assert_array_equal(np.exp(log_softmax(masked))[~mask], 0.0)
    impossible = _PLAIN.log_prob(masked, mask.argmin(axis=1))
    for numbers in (log_probs, impossible, _PLAIN.entropy(masked), _PLAIN.kl(masked, masked)):
        assert np.isfinite(numbers).all()
    assert np.isfinite(_PLAIN.kl(logits, masked)).all()  # of what one of both cannot do

    kind = torch_distribution_of(ActionSpec.discrete(6))
    parameters = torch.from_numpy(logits).requires_grad_()
    policy = kind(parameters, torch.from_numpy(mask))
    total = policy.entropy().sum() + policy.log_prob(torch.from_numpy(mask.argmax(axis=1))).sum()
    (total + policy.kl(kind(torch.from_numpy(logits).roll(1, 0))).sum()).backward()
    assert torch.isfinite(total) and torch.isfinite(parameters.grad).all()
    np.testing.assert_array_equal(parameters.grad.numpy()[~mask], 0.0)


def test_no_uniform_number_makes_a_masked_action_win() -> None:
    class Zeros(np.random.Generator):
        def random(self, size, dtype):  # type: ignore[no-untyped-def,override]
            return np.where(np.arange(size[1]) == 2, 0.0, 1 - 2.0**-24).astype(dtype) + np.zeros(
                size, dtype
            )

    only_two = _PLAIN.mask(np.zeros((3, 4), np.float32), np.arange(4) == np.full((3, 1), 2))
    actions, log_probs = _PLAIN.sample(only_two, Zeros(np.random.PCG64(0)))
    assert actions.tolist() == [2, 2, 2] and log_probs.tolist() == [0, 0, 0]


def test_a_mask_that_does_not_fit_or_leaves_nothing_is_refused() -> None:
    logits = np.zeros((2, 3), np.float32)
    assert _PLAIN.mask(logits, None) is logits
    for mask in (np.ones((2, 4), np.bool_), np.array([[True] * 3, [False] * 3])):
        with pytest.raises(ValueError, match=r"mask: expected \[2, 3\], with a possible action"):
            _PLAIN.mask(logits, mask)
