"""Portfolios that need no policy: what a policy has to beat, with the same costs.

Each decides on target weights from the bars up to t; they are bought at bar t + 1, as a policy's
orders are, in shares of any fraction.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aclearn.envs.trading.extra import finance
from aclearn.envs.trading.market import Market, Numbers
from aclearn.envs.trading.performance import Track
from aclearn.errors import MarketError

#: Days of a month between two decisions, and of the year that they look back on.
_MONTH, _YEAR = 21, 252
#: Share of the stocks that momentum holds.
_BEST = 0.2

#: From the closes up to a bar [t + 1, n], and the bars of a day, to weights [n] that sum up to 1.
_Weights = Callable[[Numbers, int], Numbers]


def _equal(closes: Numbers, bars_per_day: int) -> Numbers:
    n = closes.shape[1]
    return np.full(n, 1.0 / n)


def _minimum_variance(closes: Numbers, bars_per_day: int) -> Numbers:
    """The weights of at least 0 whose portfolio varied least in the last year."""
    past = closes[-_YEAR * bars_per_day - 1 :]
    covariance = np.cov((past[1:] / past[:-1] - 1.0).T)
    scale = np.trace(covariance) / len(covariance)
    # min |Lᵀw|² + (1ᵀw − 1)² over w ≥ 0 is a multiple of the answer: its gradient conditions are
    ridge = 1e-9 * np.eye(len(covariance))  # stocks that move as one
    root = np.linalg.cholesky(np.atleast_2d(covariance) / scale + ridge).T
    nnls = finance("scipy.optimize").nnls
    weights, _ = nnls(np.vstack([root, np.ones(len(root))]), np.append(np.zeros(len(root)), 1.0))
    return np.asarray(weights / weights.sum())


def _momentum(closes: Numbers, bars_per_day: int) -> Numbers:
    """Equal weights of the fifth of stocks that rose most in the last year but its last month."""
    rise = closes[-_MONTH * bars_per_day - 1] / closes[-_YEAR * bars_per_day - 1]
    count = max(1, round(_BEST * len(rise)))
    weights = np.zeros(len(rise))
    weights[np.argsort(-rise, kind="stable")[:count]] = 1.0 / count
    return weights


#: Name → weights, whether it decides again each month, and days of history that it needs.
_RULES: dict[str, tuple[_Weights, bool, int]] = {
    "equal weight": (_equal, True, 0),
    "buy and hold": (_equal, False, 0),
    "minimum variance": (_minimum_variance, True, _YEAR),
    "momentum": (_momentum, True, _YEAR),
}
INDEX = "index"
BASELINES = (*_RULES, INDEX)


def baseline(market: Market, bars: tuple[int, int], name: str, *, cost: float) -> Track:
    """A baseline's track over the bars [begin, end).

    "index" follows the index and pays its costs once.

    Raises:
        MarketError: an unknown name, no index, or too few bars before the period.
    """
    begin, _ = bars
    if name == INDEX:
        if market.index is None:
            raise MarketError(f"the market has no index ({market.notes.source})")
        return _held(market, market.index[:, None], bars, _equal, again=False, cost=cost)
    if name not in _RULES:
        raise MarketError(f"baseline {name!r} is none of {', '.join(BASELINES)}")
    weights, again, history = _RULES[name]
    if begin < history * market.bars_per_day:
        raise MarketError(
            f"{name} needs {history * market.bars_per_day} bars before the period, and there are "
            f"{begin}"
        )
    return _held(market, market.close, bars, weights, again=again, cost=cost)


def _held(
    market: Market,
    prices: Numbers,
    bars: tuple[int, int],
    weights: _Weights,
    *,
    again: bool,
    cost: float,
) -> Track:
    """Hold the weights decided at the first bar, and again each month."""
    begin, end = bars
    month = _MONTH * market.bars_per_day
    cash, shares = 1.0, np.zeros(prices.shape[1])
    values, costs, turnover = [1.0], 0.0, 0.0
    for t in range(begin, end - 1):
        now = prices[t + 1]
        if t == begin or (again and (t - begin) % month == 0):
            wanted = weights(prices[: t + 1], market.bars_per_day)
            traded, shares = _rebalanced(cash, shares, now, wanted, cost)
            cash, costs, turnover = 0.0, costs + cost * traded, turnover + traded
        values.append(cash + float(shares @ now))
    return Track(market.times[begin:end], np.array(values), costs, turnover)


def _rebalanced(
    cash: float, shares: Numbers, prices: Numbers, weights: Numbers, cost: float
) -> tuple[float, Numbers]:
    """Value that is traded for these weights, and the shares after it; costs leave no cash."""
    held = shares * prices
    whole = left = cash + float(held.sum())
    for _ in range(50):  # each turn is `cost` times closer
        left = whole - cost * float(np.abs(weights * left - held).sum())
    wanted = weights * left
    return float(np.abs(wanted - held).sum()), wanted / prices
