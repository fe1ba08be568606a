"""Synthetic bars for tests and examples; nothing learned on them says anything of a market."""

from __future__ import annotations

import numpy as np

from aclearn.envs.trading.market import DAYS_PER_YEAR, Market, MarketNotes, Numbers, Times
from aclearn.errors import MarketError

#: Minutes of a session of the New York Stock Exchange, from 9:30 to 16:00.
SESSION_MINUTES = 390
_OPENS_AT_MINUTE = 570
#: Share of a stock's variance that all stocks have in common.
_COMMON = 0.4
#: GARCH(1, 1) of days: weights of the last squared return and of the last variance.
_ALPHA, _BETA = 0.08, 0.9
#: Moves within a bar between its open and close, beside the bar's own.
_PIECES = 4


def synthetic_market(
    *,
    stocks: int = 5,
    days: int = 60,
    bars_per_day: int = 1,
    seed: int = 0,
    annual_volatility: float = 0.3,
    annual_drift: float = 0.05,
) -> Market:
    """Open, high, low, close and volume of invented stocks, and an index of them.

    Returns have a common factor, volatilities that change from day to day (GARCH), and within a
    day the volatility is highest at its ends, as is the volume. With more than one bar a day bars
    are those of a session from 9:30 to 16:00, `390 / bars_per_day` minutes each.

    Raises:
        MarketError: an argument out of its bounds.
    """
    if stocks < 1 or days < 2 or bars_per_day < 1 or SESSION_MINUTES % bars_per_day:
        raise MarketError(
            "synthetic: expected at least 1 stock, 2 days, and bars_per_day that divides "
            f"{SESSION_MINUTES}, got {stocks}, {days} and {bars_per_day}"
        )
    rng = np.random.default_rng(seed)
    T = days * bars_per_day
    sigma = _daily_volatility(rng, days, annual_volatility / np.sqrt(DAYS_PER_YEAR))
    in_day = _shape_of_day(bars_per_day)  # its squares sum up to 1
    scale = (sigma[:, None] * in_day).reshape(T) / np.sqrt(_PIECES)
    common = rng.standard_normal((T, _PIECES, 1))
    own = rng.standard_normal((T, _PIECES, stocks))
    noise = np.sqrt(_COMMON) * common + np.sqrt(1.0 - _COMMON) * own
    drift = annual_drift / (DAYS_PER_YEAR * bars_per_day * _PIECES)
    moves = drift - 0.5 * scale[:, None, None] ** 2 + scale[:, None, None] * noise
    start = rng.uniform(20.0, 200.0, stocks)
    path = np.log(start) + np.cumsum(moves.reshape(T * _PIECES, stocks), axis=0)
    path = np.exp(path).reshape(T, _PIECES, stocks)
    close = path[:, -1]
    opens = np.concatenate([start[None], close[:-1]])
    inside = np.concatenate([opens[:, None], path], axis=1)
    shape = np.tile(in_day, days)[:, None]
    volume = np.round(1e6 * shape**2 * np.exp(0.5 * rng.standard_normal((T, stocks))))
    return Market(
        _times(days, bars_per_day),
        tuple(f"S{i:02d}" for i in range(stocks)),
        close,
        opens,
        inside.max(axis=1),
        inside.min(axis=1),
        volume,
        100.0 * (close / start).mean(axis=1),
        notes=MarketNotes(
            source=f"synthetic, seed {seed}: invented prices, not a market",
            calendar="weekdays without holidays",
            splits="none",
            survivorship="no stock fails",
        ),
    )


def _daily_volatility(rng: np.random.Generator, days: int, usual: float) -> Numbers:
    """GARCH(1, 1) around the usual volatility, [days]."""
    variance = np.empty(days)
    variance[0] = usual**2
    shocks = rng.standard_normal(days)
    for day in range(1, days):
        last = variance[day - 1]
        variance[day] = (1.0 - _ALPHA - _BETA) * usual**2 + (
            _ALPHA * shocks[day - 1] ** 2 + _BETA
        ) * last
    return np.sqrt(variance)


def _shape_of_day(bars: int) -> Numbers:
    """How a day's volatility is spread over its bars: a U, twice as high at the ends."""
    middle = np.linspace(-1.0, 1.0, bars) if bars > 1 else np.zeros(1)
    shape = 1.0 + middle**2
    unit: Numbers = shape / np.sqrt((shape**2).sum())
    return unit


def _times(days: int, bars_per_day: int) -> Times:
    dates: Times = np.busday_offset("2020-01-01", np.arange(days), roll="forward").astype(
        "datetime64[s]"
    )
    if bars_per_day == 1:
        return dates
    minutes = _OPENS_AT_MINUTE + SESSION_MINUTES // bars_per_day * np.arange(1, bars_per_day + 1)
    times: Times = (dates[:, None] + minutes.astype("timedelta64[m]")).reshape(-1)
    return times
