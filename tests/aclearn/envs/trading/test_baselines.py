from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from aclearn.envs.trading import Market, synthetic_market
from aclearn.envs.trading.baselines import BASELINES, _minimum_variance, baseline
from aclearn.errors import MarketError

_MARKET = synthetic_market(stocks=6, days=400, seed=8)
_BARS = 300, 380


def _rising(*rates: float) -> Market:
    """400 days of stocks that rise by these rates a day."""
    times = np.busday_offset("2020-01-01", np.arange(400), roll="forward")
    close = 10.0 * (1.0 + np.array(rates)) ** np.arange(400)[:, None]
    names = tuple(f"S{i}" for i in range(len(rates)))
    return Market(times.astype("datetime64[s]"), names, close)


def test_buy_and_hold_buys_equal_amounts_at_the_next_bar_and_pays_once() -> None:
    market = _rising(0.0, 0.01)
    track = baseline(market, _BARS, "buy and hold", cost=0.01)
    bought = 1.0 / 1.01  # of each unit of cash, the rest are costs
    expected = bought * (0.5 + 0.5 * 1.01 ** np.arange(79))
    np.testing.assert_allclose(track.values, [1.0, *expected])
    assert track.turnover == pytest.approx(bought) and track.costs == pytest.approx(0.01 * bought)


def test_equal_weight_sells_what_rose_each_month() -> None:
    market = _rising(0.0, 0.01)
    month = 1.01**21
    expected = 0.5 + 0.5 * month
    again = expected * (0.5 + 0.5 * 1.01**21)
    track = baseline(market, _BARS, "equal weight", cost=0.0)
    assert track.values[[1, 22, 43]] == pytest.approx([1.0, expected, again])
    assert track.turnover == pytest.approx(1 + 0.5 * (month - 1) + 0.5 * (month - 1) * expected + (
        0.5 * (month - 1) * again
    ))  # fmt: skip


def test_costs_are_what_lowers_a_baseline() -> None:
    free, dear = (baseline(_MARKET, _BARS, "equal weight", cost=cost) for cost in (0.0, 0.002))
    assert free.costs == 0.0 < dear.costs == pytest.approx(0.002 * dear.turnover)
    # after a rebalance nothing is left of the costs' cash: values are below by what was paid
    assert free.values[1] > dear.values[1] == pytest.approx(1.0 / 1.002)


def test_momentum_holds_what_rose_most_in_the_year_before_the_last_month() -> None:
    market = _rising(0.0, 0.001, 0.002, 0.003, 0.004)
    track = baseline(market, _BARS, "momentum", cost=0.0)
    np.testing.assert_allclose(track.values[1:], 1.004 ** np.arange(79))


def test_minimum_variance_is_below_every_other_mix() -> None:
    closes = _MARKET.close[:300]
    weights = _minimum_variance(closes, 1)
    covariance = np.cov((closes[-252:] / closes[-253:-1] - 1.0).T)
    assert weights.min() >= 0.0 and weights.sum() == pytest.approx(1.0)
    least = weights @ covariance @ weights
    for i, j in itertools.permutations(range(6), 2):
        if weights[i] > 0.01:  # moving a little from one stock to another is worse
            moved = weights.copy()
            moved[[i, j]] += [-0.01, 0.01]
            assert moved @ covariance @ moved > least


def test_the_index_is_bought_once() -> None:
    track = baseline(_MARKET, _BARS, "index", cost=0.0)
    assert _MARKET.index is not None
    np.testing.assert_allclose(track.values[1:], _MARKET.index[301:380] / _MARKET.index[301])


@pytest.mark.parametrize("name", BASELINES)
def test_no_baseline_sees_the_future(name: str) -> None:
    order = np.arange(400)
    order[341:] = order[341:][::-1]
    assert _MARKET.index is not None
    other = replace(_MARKET, close=_MARKET.close[order], index=_MARKET.index[order])
    other = replace(other, open=None, high=None, low=None, volume=None)
    tracks = [baseline(market, _BARS, name, cost=0.001) for market in (_MARKET, other)]
    np.testing.assert_array_equal(tracks[0].values[:41], tracks[1].values[:41])
    assert (tracks[0].values[41:] != tracks[1].values[41:]).any()


@pytest.mark.parametrize(
    ("name", "bars", "message"),
    [
        ("luck", _BARS, "baseline 'luck' is none of equal weight"),
        ("momentum", (251, 300), "momentum needs 252 bars before the period, and there are 251"),
    ],
)
def test_a_baseline_without_its_data_is_refused(
    name: str, bars: tuple[int, int], message: str
) -> None:
    with pytest.raises(MarketError, match=message):
        baseline(_MARKET, bars, name, cost=0.0)
    with pytest.raises(MarketError, match="the market has no index"):
        baseline(_rising(0.1), _BARS, "index", cost=0.0)
