from __future__ import annotations

import numpy as np
import pytest

from aclearn.envs.trading import load_market, synthetic_market
from aclearn.envs.trading.turbulence import turbulence
from aclearn.errors import MarketError


def test_it_is_the_distance_of_a_bar_from_the_year_before() -> None:
    market = load_market("sp500_20")
    returns = np.diff(market.close, axis=0) / market.close[:-1]
    result = turbulence(market, 300, 830)
    for t in (300, 512, 829):
        past = returns[t - 253 : t - 1]
        away = returns[t - 1] - past.mean(axis=0)
        assert result[t - 300] == pytest.approx(away @ np.linalg.inv(np.cov(past.T)) @ away)


def test_it_is_highest_in_a_crash() -> None:
    market = load_market("sp500_20")
    march_2020 = market.position("2020-03-09", key="")
    result = turbulence(market, march_2020 - 250, march_2020 + 10)
    assert result[250:].max() > 5 * np.median(result[:240])


def test_too_little_history_is_refused_with_the_first_possible_bar() -> None:
    market = synthetic_market(stocks=3, days=300)
    turbulence(market, 253, 300)
    with pytest.raises(
        MarketError, match=r"turbulence: it needs 252 returns before .* are 251; the"
    ):
        turbulence(market, 252, 300)
    with pytest.raises(MarketError, match="the first possible bar is none"):
        turbulence(synthetic_market(stocks=3, days=100), 50, 100)


def test_more_stocks_than_history_have_no_covariance() -> None:
    with pytest.raises(MarketError, match="the covariance of 252 stocks needs more than 252"):
        turbulence(synthetic_market(stocks=252, days=260), 255, 260)
