from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from aclearn.metrics.seed_statistics import (
    bootstrap_interval,
    estimate,
    interquartile_mean,
    mean_interval,
    quartiles,
)

_GOLDEN = json.loads((Path(__file__).parent / "golden" / "rliable.json").read_text())
_STATISTICS = {"mean": np.mean, "interquartile mean": interquartile_mean}


@pytest.mark.parametrize("case", _GOLDEN["cases"])
def test_value_and_interval_are_those_of_rliable(case) -> None:
    scores, statistic = np.array(case["scores"]), _STATISTICS[case["statistic"]]
    random = np.random.RandomState(_GOLDEN["seed"])  # draw by draw as rliable does
    shape = (len(scores), 1)
    draws = [random.choice(len(scores), shape)[:, 0] for _ in range(_GOLDEN["resamples"])]
    np.testing.assert_allclose(statistic(scores, 0), case["value"], rtol=1e-12)
    interval = bootstrap_interval(scores, statistic, np.array(draws))
    np.testing.assert_allclose(interval, case["interval"], rtol=1e-12)


@pytest.mark.parametrize("case", _GOLDEN["cases"])
def test_our_own_draws_give_about_the_same_interval(case) -> None:
    scores = case["scores"]
    made = estimate(scores)
    enough = len(scores) >= 5
    assert made.name == ("interquartile mean" if enough else "mean")
    if made.name == case["statistic"]:
        np.testing.assert_allclose(made.value, case["value"])
        # four hundred draws of rliable: an end moves by a few per cent of the spread
        spread = max(scores) - min(scores)
        np.testing.assert_allclose((made.low, made.high), case["interval"], atol=0.1 * spread)


def test_each_point_has_its_own_interval_and_repeated_calls_agree() -> None:
    curves = np.random.default_rng(3).normal(size=(6, 4))
    whole = estimate(curves, resamples=500)
    for n in range(4):
        alone = estimate(curves[:, n], resamples=500)
        np.testing.assert_array_equal(
            [whole.value[n], whole.low[n], whole.high[n]], [alone.value, alone.low, alone.high]
        )
    assert (whole.low < whole.value).all() and (whole.value < whole.high).all()


def test_a_single_run_has_no_interval() -> None:
    assert estimate([5.0]) == ("value", 5.0, None, None)


def test_quartiles_count_an_unreached_goal_as_later_than_all_others() -> None:
    never = math.inf
    assert quartiles([4.0, 1.0, 2.0, 3.0]) == pytest.approx(
        np.quantile([1, 2, 3, 4], [0.25, 0.5, 0.75])
    )
    assert quartiles([never, 1.0, 2.0]) == (1.5, 2.0, never)
    assert quartiles([never, never, 3.0]) == (never, never, never)
    assert quartiles([never]) == (never, never, never)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


def test_the_interval_of_many_values_needs_little_memory() -> None:
    values = np.random.default_rng(3).normal(5.0, 2.0, 4_000)
    tracemalloc.start()
    low, high = mean_interval(values)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 200e6  # all draws at once are 640 MB
    # by the central limit theorem ± 1.96 σ / √n
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.004)
