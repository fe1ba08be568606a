"""Technical indicators by the names of stockstats, computed by TA-Lib."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aclearn.envs.trading.extra import finance
from aclearn.envs.trading.market import Market, Numbers
from aclearn.errors import MarketError, did_you_mean


@dataclass(frozen=True)
class _Indicator:
    """One kind of indicator.

    Attributes:
        pattern: of its names; its group, if any, is the number of bars.
        compute: from talib, a stock's columns and the number of bars to [T].
        columns: that it reads, in the order in which `compute` takes them.
        relative: from its value and the close to a number without a unit, about 1 in size.
    """

    pattern: str
    compute: Callable[..., Any]
    columns: tuple[str, ...]
    relative: Callable[[Numbers, Numbers], Numbers]


def _of_price(value: Numbers, close: Numbers) -> Numbers:
    return value / close


def _above_price(value: Numbers, close: Numbers) -> Numbers:
    return value / close - 1.0


def _of_percent(value: Numbers, close: Numbers) -> Numbers:
    return value / 100.0


def _around_half(value: Numbers, close: Numbers) -> Numbers:
    return value / 50.0 - 1.0


def _as_it_is(value: Numbers, close: Numbers) -> Numbers:
    return value


_HLC = ("high", "low", "close")
_KINDS = (
    _Indicator(
        "macd", lambda ta, close, _: ta.MACD(close, 12, 26, 9)[0], ("close",), _of_price
    ),
    _Indicator(
        "boll_ub", lambda ta, close, _: ta.BBANDS(close, 20, 2.0, 2.0)[0], ("close",), _above_price
    ),
    _Indicator(
        "boll_lb", lambda ta, close, _: ta.BBANDS(close, 20, 2.0, 2.0)[2], ("close",), _above_price
    ),
    _Indicator(r"close_(\d+)_sma", lambda ta, close, N: ta.SMA(close, N), ("close",), _above_price),
    _Indicator(r"rsi_(\d+)", lambda ta, close, N: ta.RSI(close, N), ("close",), _around_half),
    _Indicator(r"cci_(\d+)", lambda ta, *hlc: ta.CCI(*hlc), _HLC, _of_percent),
    _Indicator(r"dx_(\d+)", lambda ta, *hlc: ta.DX(*hlc), _HLC, _of_percent),
    _Indicator(r"mfi_(\d+)", lambda ta, *hlcv: ta.MFI(*hlcv), (*_HLC, "volume"), _around_half),
    _Indicator(
        r"beta_(\d+)", lambda ta, close, index, N: ta.BETA(index, close, N), ("close", "index"),
        _as_it_is,
    ),
)  # fmt: skip
_SHOWN = ", ".join(kind.pattern.replace(r"(\d+)", "30") for kind in _KINDS)


def indicator(market: Market, name: str) -> Numbers:
    """An indicator's value at each bar, [T, n]; NaN where the bars before are too few.

    A value depends on its own bar and earlier ones. Bollinger's bands are 2 population deviations
    from the mean of 20 bars; `beta_N` is the slope of a stock's returns over the index's.

    Raises:
        MarketError: an unknown name, one that needs what the market does not have, or TA-Lib is
            not installed.
    """
    kind, bars = _kind(name)
    missing = [column for column in kind.columns if getattr(market, column) is None]
    if missing:
        raise MarketError(
            f"indicator {name}: it needs {' and '.join(missing)}, which the market does not have "
            f"({market.notes.source}); leave it out or load bars with these columns"
        )
    talib = finance("talib")
    columns = [np.asarray(getattr(market, column), np.float64) for column in kind.columns]
    series = [
        kind.compute(
            talib, *(np.ascontiguousarray(c if c.ndim == 1 else c[:, i]) for c in columns), bars
        )
        for i in range(len(market.names))
    ]
    return np.stack(series, axis=1)


def relative_indicator(market: Market, name: str) -> Numbers:
    """The same values without a unit and about 1 in size, as a policy sees them; errors as above.

    Levels are relative to the close, so that prices of other years look alike.
    """
    kind, _ = _kind(name)
    return kind.relative(indicator(market, name), market.close)


def check_names(names: Sequence[str]) -> None:
    """Raise `MarketError` if a name is unknown or given twice."""
    for name in names:
        _kind(name)
        if list(names).count(name) > 1:
            raise MarketError(f"indicators: {name} is there twice")


def _kind(name: str) -> tuple[_Indicator, int]:
    for kind in _KINDS:
        if found := re.fullmatch(kind.pattern, name):
            bars = int(found[1]) if found.groups() else 0
            if found.groups() and bars < 2:
                raise MarketError(f"indicator {name}: expected at least 2 bars")
            return kind, bars
    raise MarketError(
        f"indicator {name!r} is unknown{did_you_mean(name, _SHOWN.split(', ')) or '.'} "
        f"Known, with any number of bars: {_SHOWN}"
    )
