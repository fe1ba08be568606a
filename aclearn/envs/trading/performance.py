"""Figures of an account's values, by empyrical, annualised by the bar's own length."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from aclearn.envs.trading.extra import finance
from aclearn.envs.trading.market import DAYS_PER_YEAR, Market, Numbers, Times


@dataclass(frozen=True, eq=False)
class Track:
    """What an account was worth at each bar.

    Attributes:
        times: [T], the first one before any trade.
        values: [T], above 0.
        costs: paid in all, over the first value.
        turnover: value of all that was sold and bought, over the first value.
    """

    times: Times
    values: Numbers
    costs: float
    turnover: float

    @property
    def drawdown(self) -> Numbers:
        """Loss since the highest value so far, [T], 0 or below."""
        drawdown: Numbers = self.values / np.maximum.accumulate(self.values) - 1.0
        return drawdown


@dataclass(frozen=True)
class Performance:
    """The figures of FinRL-Podracer's Table 2, and Calmar's ratio; NaN where there is none.

    Attributes:
        sharpe: mean over standard deviation of a bar's returns, annualised; no risk-free rate.
        sharpe_daily: the same of daily returns; equal to `sharpe` where bars are days.
        max_drawdown: the largest loss since an earlier value, the first one included; 0 or below.
    """

    cumulative_return: float
    annual_return: float
    annual_volatility: float
    sharpe: float
    sharpe_daily: float
    max_drawdown: float
    calmar: float

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all figures."""
        return tuple(field.name for field in fields(cls))


def performance(track: Track, market: Market) -> Performance:
    """The figures of a track, whose bars are those of the market.

    Raises:
        MarketError: empyrical is not installed.
    """
    empyrical, yearly = finance("empyrical"), market.bars_per_year
    returns = _returns(track.values)
    daily = _returns(track.values[_last_of_days(track.times)])

    def sharpe(of: Numbers, bars: float) -> float:
        # without any change empyrical would divide by rounding errors
        return float(empyrical.sharpe_ratio(of, annualization=bars)) if of.any() else math.nan

    return Performance(
        float(empyrical.cum_returns_final(returns)),
        float(empyrical.annual_return(returns, annualization=yearly)),
        float(empyrical.annual_volatility(returns, annualization=yearly)),
        sharpe(returns, yearly),
        sharpe(daily, DAYS_PER_YEAR),
        float(empyrical.max_drawdown(returns)),
        float(empyrical.calmar_ratio(returns, annualization=yearly)),
    )


def _returns(values: Numbers) -> Numbers:
    returns: Numbers = values[1:] / values[:-1] - 1.0
    return returns


def _last_of_days(times: Times) -> NDArray[np.bool_]:
    """The first bar of all, and the last of each day."""
    days = times.astype("datetime64[D]")
    last = np.append(days[1:] != days[:-1], True)
    last[0] = True
    return last
