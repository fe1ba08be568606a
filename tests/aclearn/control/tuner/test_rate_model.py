"""The model of rates: against the joint distribution that it conditions, and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aclearn.control.tuner.rate_model import _LEVEL_VARIANCE, _PECULIAR, _REACH, _SPREAD, RateModel

SETTINGS = [(1, 1), (2, 1), (4, 2), (3, 8)]
MEASURED = [(2, 1), (4, 4), (1, 1), (8, 2)]
RATES = [500.0, 900.0, 300.0, 700.0]
DEVIATIONS = [0.05, 0.02, 0.1, 0.03]


def _prior(one, two) -> float:
    far = sum(math.log2(a / b) ** 2 for a, b in zip(one, two, strict=True))
    alike = _SPREAD**2 * math.exp(-far / (2 * _REACH**2))
    return alike + _LEVEL_VARIANCE + (_PECULIAR**2 if one == two else 0.0)


def test_it_is_the_gaussian_of_all_settings_given_the_measured_one_after_the_other() -> None:
    """Conditioned by one measurement at a time, where the model takes all at once."""
    every = list(dict.fromkeys([*SETTINGS, *MEASURED]))
    mean = np.full(len(every), math.log(RATES[0]))
    covariance = np.array([[_prior(a, b) for b in every] for a in every])
    for setting, rate, deviation in zip(MEASURED, RATES, DEVIATIONS, strict=True):
        i = every.index(setting)
        gain = covariance[:, i] / (covariance[i, i] + deviation**2)
        mean = mean + gain * (math.log(rate) - mean[i])
        covariance = covariance - np.outer(gain, covariance[i])
    model = RateModel(SETTINGS, MEASURED, RATES, DEVIATIONS)
    chosen = [every.index(setting) for setting in SETTINGS]
    np.testing.assert_allclose(model.mean, mean[chosen], rtol=1e-6)
    np.testing.assert_allclose(model.covariance, covariance[np.ix_(chosen, chosen)], atol=1e-6)
    change, sd = model.change((1, 1), (4, 2))
    difference = mean[every.index((4, 2))] - mean[every.index((1, 1))]
    assert change == pytest.approx(math.exp(difference) - 1.0)
    one, two = every.index((1, 1)), every.index((4, 2))
    variance = covariance[one, one] + covariance[two, two] - 2 * covariance[one, two]
    assert sd == pytest.approx(math.sqrt(variance) * math.exp(difference), rel=1e-4)


@pytest.mark.parametrize("cost", [0.0, 0.05])
@pytest.mark.parametrize("at", [(2, 1), (4, 2), (3, 8)])
def test_the_value_of_a_window_is_what_the_better_setting_gains_by_it(at, cost: float) -> None:
    """Simulated: the log rates, a window, and what is expected of both settings after it."""
    draws, deviation = np.random.default_rng(3), 0.04
    model = RateModel([(1, 1), at], MEASURED, RATES, DEVIATIONS)
    c = model.covariance
    windows = draws.normal(model.mean[1], math.sqrt(c[1, 1] + deviation**2), 1_000_000)
    gain = c[:, 1] / (c[1, 1] + deviation**2)
    after = model.mean + gain * (windows[:, None] - model.mean[1]) - [0.0, cost]
    before = max(model.mean[0], model.mean[1] - cost)
    simulated = after.max(axis=1).mean() - before
    assert model.value_of_window((1, 1), at, deviation, cost) == pytest.approx(simulated, abs=1e-3)
