"""Masks, the step's scale and the adaptive strength, by the authors' code and by arithmetic."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from correctors import (
    Adaptive,
    CorrectionInput,
    CorrectorChain,
    ImportanceSampling,
    NoCorrection,
    RatioMask,
    ScaleByESS,
    SecondMoment,
    TVMask,
    UnrollMask,
    VTrace,
)

NAN = float("nan")


def corrected(batch, *links):
    chain = CorrectorChain()
    for link in links:
        chain = chain.add(link)
    return chain.correct(batch)


def batch_of(log_rhos, valid=None, gaps=None, **more) -> CorrectionInput:
    """A batch with these log ratios, which is a whole update's."""
    log_rhos = torch.as_tensor(log_rhos, dtype=torch.float32)
    zeros = torch.zeros_like(log_rhos)
    valid = torch.ones_like(log_rhos, dtype=torch.bool) if valid is None else torch.tensor(valid)
    gaps = zeros if gaps is None else torch.as_tensor(gaps, dtype=torch.float32)
    given = {
        **{name: zeros for name in ("values", "next_values", "rewards", "discounts")},
        "done": zeros.bool(),
        "log_rhos": log_rhos,
        "log_gaps": gaps,
        "valid": valid,
    }
    return CorrectionInput(**given | more)


@pytest.fixture(scope="module")
def authors():
    """What the authors' code keeps, and the batch that it was given."""
    with np.load(Path(__file__).parent / "golden" / "masks.npz") as stored:
        g = dict(stored)
    log_pi, log_mu = torch.from_numpy(g["log_pi"]), torch.from_numpy(g["log_mu"])
    batch = batch_of(
        log_pi - log_mu,
        g["valid"],
        log_pi=log_pi,
        behaviour_probs=log_mu.exp(),
        rewards=torch.from_numpy(g["advantages"]),  # with values of 0 the advantages
    )
    return batch, g


@pytest.mark.parametrize(
    ("link", "name", "metric"),
    [
        (SecondMoment(0.04), "m2po_kept", "second_moment_masked_share"),
        (TVMask(0.2), "dppo_kept", "tv_masked_share"),
        (RatioMask(0.5, 2.0), "token_kept", "ratio_masked_share"),
    ],
)
def test_a_mask_keeps_the_steps_that_its_authors_code_keeps(authors, link, name, metric) -> None:
    batch, g = authors

    correction = corrected(batch, ImportanceSampling(None), link)

    counted = g["valid"]
    kept = g[name][counted]
    assert 0 < kept.sum() < kept.size
    weights = batch.log_rhos.exp().numpy()[counted] * kept
    np.testing.assert_allclose(correction.weights.numpy()[counted], weights, rtol=1e-6)
    np.testing.assert_array_equal(correction.metrics[metric].numpy()[counted], 1.0 - kept)
    assert correction.kept is None  # values learn of all steps


def test_the_unrolls_that_verl_rejects_have_no_part_at_all(authors) -> None:
    batch, g = authors

    correction = corrected(batch, UnrollMask(0.99, 1.01))

    kept = g["geometric_kept"].any(0)
    assert 0 < kept.sum() < kept.size
    np.testing.assert_array_equal(correction.kept, np.broadcast_to(kept, g["valid"].shape))
    np.testing.assert_array_equal(
        correction.metrics["unroll_dropped_share"], ~correction.kept.numpy()
    )


def test_a_masked_step_leaves_the_targets_of_its_neighbours_as_they_are(random_trace) -> None:
    trace = random_trace(9, 4)
    far = trace["log_rhos"].abs() > math.log(2.0)
    assert far.any()
    batch = CorrectionInput(**trace)

    masked = corrected(batch, VTrace(), ImportanceSampling(), RatioMask(0.5, 2.0))

    plain = corrected(batch, VTrace(), ImportanceSampling())
    torch.testing.assert_close(masked.targets, plain.targets, rtol=0, atol=0)
    torch.testing.assert_close(masked.advantages, plain.advantages, rtol=0, atol=0)
    expected = plain.weights.masked_fill(far, 0.0)
    torch.testing.assert_close(masked.weights, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("advantage", "kept"),
    # π − μ of the steps: 0.3, 0.1, −0.3; the update would widen it where the signs agree
    [(1.0, [False, True, True]), (-1.0, [True, True, False]), (0.0, [True, True, False])],
)
def test_a_probability_is_held_back_in_the_direction_of_the_update_alone(advantage, kept) -> None:
    pi, mu = torch.tensor([[0.6], [0.3], [0.1]]), torch.tensor([[0.3], [0.2], [0.4]])
    batch = batch_of(
        (pi / mu).log(),
        log_pi=pi.log(),
        behaviour_probs=mu,
        rewards=torch.full((3, 1), advantage),
    )
    weights = corrected(batch, NoCorrection(), TVMask(0.2)).weights
    assert weights.flatten().tolist() == [float(each) for each in kept]


def test_each_part_of_a_ratio_is_corrected_by_itself() -> None:
    gaps, drifts = np.log([[3.0, 1.0, 0.4]]), np.log([[0.5, 2.5, 1.2]])
    batch = batch_of(gaps + drifts, gaps=gaps)

    correction = corrected(
        batch, RatioMask(0.5, 2.0, part="gap"), ImportanceSampling(2.0, part="drift")
    )

    np.testing.assert_allclose(correction.weights, [[0.0, 2.0, 0.0]], rtol=1e-6)
    np.testing.assert_array_equal(correction.metrics["gap_masked_share"], [[1, 0, 1]])
    whole = corrected(batch, RatioMask(0.5, 2.0)).weights  # 1.5, 2.5, 0.48
    np.testing.assert_array_equal(whole, [[1, 0, 0]])


def test_steps_that_do_not_count_have_no_part_in_figures_of_a_batch() -> None:
    valid = [[True, True], [False, True]]
    batch = batch_of([[0.0, 0.1], [9.0, 0.2]], valid)
    # the squares 0, 0.01 and 0.04 have the mean 0.0167, and 0 and 0.01 have 0.005
    for bound, kept in ((0.017, [1, 1, 1]), (0.016, [1, 1, 0])):
        weights = corrected(batch, SecondMoment(bound)).weights[batch.valid]
        np.testing.assert_array_equal(weights, kept)
    # means of log ρ: 0 of the first environment without its reset, 0.15 of the second one
    kept = corrected(batch, UnrollMask(0.9, 1.1)).kept
    np.testing.assert_array_equal(kept, [[True, False], [True, False]])


def test_steps_of_one_size_are_masked_together_and_maybe_all() -> None:
    batch = batch_of([[0.1, -0.5], [0.5, 0.1]])
    np.testing.assert_array_equal(corrected(batch, SecondMoment(0.12)).weights, [[1, 0], [0, 1]])
    np.testing.assert_array_equal(corrected(batch, SecondMoment(0.131)).weights, [[1, 1], [1, 1]])
    np.testing.assert_array_equal(corrected(batch, SecondMoment(0.009)).weights, [[0, 0], [0, 0]])


@pytest.mark.parametrize("rho_bar", [1.0, None])
def test_the_strength_grows_with_divergence_and_falls_with_the_effective_share(rho_bar) -> None:
    ratios = np.array([[0.5, 2.0, 1.0], [0.8, 0.9, 1.3]])
    batch = batch_of(np.log(ratios))
    kl = np.mean(ratios - 1.0 - np.log(ratios))
    share = ratios.sum() ** 2 / (ratios.size * (ratios**2).sum())
    strength = math.sqrt(1.0 - math.exp(-kl)) * share
    full = np.minimum(ratios, math.inf if rho_bar is None else rho_bar)

    correction = corrected(batch, Adaptive(rho_bar))

    np.testing.assert_allclose(correction.weights, 1.0 + strength * (full - 1.0), rtol=1e-5)
    np.testing.assert_allclose(correction.metrics["adaptive_strength"], strength, rtol=1e-5)


@pytest.mark.parametrize("log_rhos", [np.zeros((3, 2)), [[8.0] + [-9.0] * 999]])
def test_equal_policies_and_hopeless_ones_are_hardly_corrected(log_rhos) -> None:
    correction = corrected(batch_of(log_rhos), Adaptive())
    assert float(correction.metrics["adaptive_strength"].max()) < 0.01


def test_exponents_of_the_step_add_up() -> None:
    correction = corrected(batch_of(np.zeros((2, 2))), ScaleByESS(), ScaleByESS(0.25))
    assert correction.step_exponent == 0.75


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RatioMask(2.0, 2.0), r"low, high: expected 0 <= low < high, got 2.0 and 2.0"),
        (lambda: UnrollMask(-0.1), r"low, high: .*got -0.1"),
        (lambda: UnrollMask(NAN), r"low, high: .*got nan"),
        (lambda: TVMask(0.0), r"bound: expected a positive number"),
        (lambda: SecondMoment(-1.0), r"bound: expected a positive number"),
        (lambda: ScaleByESS(0.0), r"exponent: expected a positive number"),
        (lambda: Adaptive(0.0), r"rho_bar: "),
        (lambda: RatioMask(part="whole"), r"part: expected ratio, gap, drift, got 'whole'"),
    ],
)
def test_bad_parameters_are_refused(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()
