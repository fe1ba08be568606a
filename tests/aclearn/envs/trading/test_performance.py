from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from aclearn.envs.trading import Market, load_market, synthetic_market
from aclearn.envs.trading.performance import Performance, Track, performance
from aclearn.errors import MarketError
from tests.support.finrl_golden import FIRST, STEPS, actions, batch_of


def _figures(market: Market, values: list[float]) -> Performance:
    track = Track(market.times[: len(values)], np.array(values), 0.0, 0.0)
    return performance(track, market)


def test_the_figures_are_those_of_their_definitions() -> None:
    values = [1.0, 0.9, 1.1, 1.21, 1.0, 1.3]
    found = _figures(synthetic_market(days=10), values)
    returns = np.diff(values) / values[:-1]
    annual = 1.3 ** (252 / 5) - 1
    drawdown = 1.0 / 1.21 - 1
    sharpe = returns.mean() / returns.std(ddof=1) * math.sqrt(252)
    expected = {
        "cumulative_return": 0.3,
        "annual_return": annual,
        "annual_volatility": returns.std(ddof=1) * math.sqrt(252),
        "sharpe": sharpe,
        "sharpe_daily": sharpe,
        "max_drawdown": drawdown,
        "calmar": annual / -drawdown,
    }
    assert vars(found) == pytest.approx(expected)


def test_a_loss_at_the_first_bar_is_a_drawdown() -> None:
    found = _figures(synthetic_market(days=10), [1.0, 0.8, 0.9])
    assert found.max_drawdown == pytest.approx(-0.2)


def test_bars_within_a_day_are_annualised_by_their_own_length() -> None:
    market = synthetic_market(stocks=1, days=5, bars_per_day=3)
    values = [1.0, 1.01, 1.0, 1.02, 1.05, 1.03, 1.04, 1.06, 1.1]
    found = _figures(market, values)
    returns = np.diff(values) / values[:-1]
    assert found.annual_return == pytest.approx(1.1 ** (756 / 8) - 1)
    assert found.sharpe == pytest.approx(returns.mean() / returns.std(ddof=1) * math.sqrt(756))
    days = np.array([1.0, 1.0, 1.03, 1.1])  # the start, and the last bar of each day
    daily = np.diff(days) / days[:-1]
    assert found.sharpe_daily == pytest.approx(daily.mean() / daily.std(ddof=1) * math.sqrt(252))


def test_cash_has_neither_ratio() -> None:
    found = _figures(synthetic_market(days=10), [1.0, 1.0, 1.0])
    assert (found.cumulative_return, found.max_drawdown) == (0.0, 0.0)
    assert math.isnan(found.sharpe) and math.isnan(found.calmar)


def test_the_reference_figures_of_finrl_come_out() -> None:
    # by pyfolio, of FinRL's own values in float32
    batch, values = batch_of("plain", finrl_faults=True), [1e6]
    for _, action in zip(range(STEPS), actions(2024, 20), strict=False):
        batch.step(action[None], np.ones(1, np.bool_))
        values.append(batch.values[0])
    market = load_market("sp500_20")
    first = market.position(FIRST, key="")
    track = Track(market.times[first : first + len(values)], np.array(values), 0.0, 0.0)
    found = performance(track, market)
    figures = (0.293490, 0.067000, 0.068161, 0.985583, -0.085732)
    assert (
        found.cumulative_return,
        found.annual_return,
        found.annual_volatility,
        found.sharpe,
        found.max_drawdown,
    ) == pytest.approx(figures, abs=1.5e-6)


def test_without_empyrical_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "empyrical", None)
    with pytest.raises(MarketError, match=r"empyrical is not installed; pip install 'aclearn\[fin"):
        _figures(synthetic_market(days=10), [1.0, 1.1])
