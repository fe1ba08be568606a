"""`Auto` on batches whose right correction is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from correctors import (
    Auto,
    CorrectionInput,
    CorrectorChain,
    ImportanceSampling,
    NoCorrection,
    RatioMask,
    VTrace,
)

T, B = 40, 25


def batch_of(random_trace, gaps=0.0, drifts=0.0, valid=None) -> CorrectionInput:
    """A batch with these parts of its log ratios."""
    trace = random_trace(T, B)
    gaps, drifts = (
        torch.as_tensor(np.broadcast_to(each, (T, B)).astype(np.float32)) for each in (gaps, drifts)
    )
    valid = torch.ones(T, B, dtype=torch.bool) if valid is None else valid
    trace["log_rhos"] = gaps + drifts
    return CorrectionInput(
        **trace,
        log_gaps=gaps,
        valid=valid,
    )


def normal(spread: float, seed: int = 0) -> np.ndarray:
    """Logarithms of ratios, [T, B], whose mean over the actions of μ is about 1."""
    return spread * np.random.default_rng(seed).standard_normal((T, B)) - spread**2 / 2


def corrected(batch, *links):
    return CorrectorChain(links).correct(batch)


def strengths(correction) -> tuple[float, float]:
    """Of gap and drift, which are one number for all steps."""
    found = [correction.metrics[f"auto_{part}_strength"] for part in ("gap", "drift")]
    assert all(bool((each == each[0, 0]).all()) for each in found)
    return float(found[0][0, 0]), float(found[1][0, 0])


def assert_as(correction, expected, *, rtol=1e-5) -> None:
    for part in ("targets", "advantages", "weights"):
        one, other = getattr(correction, part), getattr(expected, part)
        torch.testing.assert_close(one, other, rtol=rtol, atol=1e-5)


def test_on_policy_there_is_no_correction_in_effect(random_trace) -> None:
    batch = batch_of(random_trace)
    correction = corrected(batch, Auto())
    assert strengths(correction) == (0.0, 0.0)
    assert_as(correction, corrected(batch, NoCorrection(0.95)))
    assert bool((correction.weights == 1.0).all())


def test_of_a_large_lag_it_is_v_trace_with_importance_sampling(random_trace) -> None:
    batch = batch_of(random_trace, drifts=normal(0.3))
    correction = corrected(batch, Auto())
    assert strengths(correction) == (0.0, 1.0)
    assert_as(correction, corrected(batch, VTrace(lambda_=0.95), ImportanceSampling()))


def test_a_gap_alone_is_truncated_and_its_outliers_are_masked(random_trace) -> None:
    gaps = normal(0.1)
    gaps[3, 4], gaps[20, 7], gaps[21, 7] = 4.0, -5.0, math.log(1.9)
    batch = batch_of(random_trace, gaps=gaps)

    correction = corrected(batch, Auto())

    assert strengths(correction) == (1.0, 0.0)
    bounded = replace(batch, log_rhos=batch.log_gaps.clamp(-math.log(2.0), math.log(2.0)))
    expected = corrected(bounded, VTrace(lambda_=0.95), ImportanceSampling())
    mask = RatioMask(0.5, 2.0, part="gap")
    masked = corrected(batch, mask)
    assert_as(correction, replace(expected, weights=expected.weights * masked.weights))
    outside = masked.metrics["gap_masked_share"]
    assert int(outside.sum()) == 2
    torch.testing.assert_close(correction.metrics["auto_masked_share"], outside)


def test_both_parts_are_corrected_together(random_trace) -> None:
    gaps, drifts = normal(0.2, seed=1), normal(0.2, seed=2)
    gaps[3, 4] = 1.0
    batch = batch_of(random_trace, gaps, drifts)

    correction = corrected(batch, Auto(lambda_=0.8))

    assert strengths(correction) == (1.0, 1.0)
    bounded = np.clip(gaps, -math.log(2.0), math.log(2.0))
    both = replace(batch, log_rhos=torch.from_numpy((bounded + drifts).astype(np.float32)))
    expected = corrected(both, VTrace(lambda_=0.8), ImportanceSampling())
    kept = torch.from_numpy(np.abs(gaps) <= math.log(2.0))
    assert_as(correction, replace(expected, weights=expected.weights * kept))


def test_a_small_divergence_is_corrected_in_proportion(random_trace) -> None:
    drifts = normal(0.1)
    kl = float(np.mean(np.exp(drifts) - 1.0 - drifts))
    assert 0.2 < kl / 0.015 < 0.5
    batch = batch_of(random_trace, drifts=drifts)

    correction = corrected(batch, Auto())

    assert strengths(correction) == pytest.approx((0.0, kl / 0.015), rel=1e-4)
    expected = np.minimum(np.exp(drifts * kl / 0.015), 1.0)
    np.testing.assert_allclose(correction.weights, expected, rtol=1e-4)


@pytest.mark.parametrize("spread", [1.5, 4.0, 7.0])
def test_ratios_of_which_few_steps_would_decide_are_tempered(random_trace, spread) -> None:
    drifts = normal(spread)
    batch = batch_of(random_trace, drifts=drifts)

    correction = corrected(batch, Auto())

    gap, strength = strengths(correction)
    assert gap == 0.0 and 0.0 < strength < 1.0
    ratios = np.exp(strength * np.clip(drifts, -20.0, 20.0))
    assert ratios.sum() ** 2 / (T * B * (ratios**2).sum()) == pytest.approx(0.9, abs=0.01)
    np.testing.assert_allclose(correction.weights, np.minimum(ratios, 1.0), rtol=1e-3)


def test_gap_and_drift_are_tempered_by_one_factor(random_trace) -> None:
    gaps, drifts = normal(0.3, seed=1), normal(1.0, seed=2)
    correction = corrected(batch_of(random_trace, gaps, drifts), Auto())
    gap, drift = strengths(correction)
    assert gap == pytest.approx(drift) and 0.2 < gap < 0.5
    ratios = np.exp(gap * (np.clip(gaps, -math.log(2.0), math.log(2.0)) + drifts))
    assert ratios.sum() ** 2 / (T * B * (ratios**2).sum()) == pytest.approx(0.9, abs=0.01)


def test_steps_that_do_not_count_have_no_say(random_trace) -> None:
    gaps, drifts = normal(0.05, seed=1), normal(0.05, seed=2)
    valid = torch.ones(T, B, dtype=torch.bool)
    valid[::3, 2] = False
    quiet = strengths(corrected(batch_of(random_trace, gaps, drifts, valid), Auto()))
    gaps[::3, 2], drifts[::3, 2] = -3.0, 9.0
    loud = strengths(corrected(batch_of(random_trace, gaps, drifts, valid), Auto()))
    assert quiet == pytest.approx(loud, rel=1e-4)  # the ratios' last digits differ
    assert 0.0 < min(quiet) < max(quiet) < 1.0


def test_one_batch_gives_one_decision(random_trace) -> None:
    batch = batch_of(random_trace, normal(0.2, seed=1), normal(2.0, seed=2))
    one, other = corrected(batch, Auto()), corrected(batch, Auto())
    assert torch.equal(one.weights, other.weights) and torch.equal(one.targets, other.targets)


def test_a_wrong_lambda_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lambda_: .*got 1.5"):
        Auto(lambda_=1.5)
