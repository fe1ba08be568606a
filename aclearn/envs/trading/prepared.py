"""What episodes read of a market: prices to trade at and the market's part of observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from aclearn.envs.trading.indicators import check_names, relative_indicator
from aclearn.envs.trading.market import Market, Numbers, Times, shown_time
from aclearn.envs.trading.turbulence import turbulence
from aclearn.errors import MarketError, did_you_mean


@dataclass(frozen=True, eq=False)
class PreparedMarket:
    """One period of a market, T bars of n stocks.

    Attributes:
        times: [T].
        prices: [T, n], closes, by which accounts are valued.
        fills: [T, n], at which orders of the bar before are filled.
        features: [T, F] float32, the market's part of an observation without the prices: the
            turbulence over its threshold (capped at 10) where there is one, then for each
            indicator and column of the user's its n numbers.
        turbulent: [T] bool, the turbulence is above its threshold.
    """

    market: Market
    times: Times
    prices: Numbers
    fills: Numbers
    features: NDArray[np.float32]
    turbulent: NDArray[np.bool_]


#: Times the threshold at which a shown turbulence is cut: a crash has hundreds of times the usual.
_MOST_TURBULENCE = 10.0


def prepare(
    market: Market,
    bars: tuple[int, int],
    *,
    indicators: Sequence[str] = (),
    columns: Sequence[str] = (),
    turbulence_threshold: float | None = None,
    fill_at: str = "close",
) -> PreparedMarket:
    """Read a period of a market; each bar's numbers depend on that bar and earlier ones.

    Args:
        bars: the first one and the one after the last.
        columns: names of `market.columns`, which are shown as they are.
        fill_at: "close" or "open" of the next bar.

    Raises:
        MarketError: the market lacks a column, or has too few bars before the period.
    """
    begin, end = bars
    check_names(indicators)
    if fill_at not in ("close", "open"):
        raise MarketError(f"fill_at: expected close or open, got {fill_at!r}")
    if fill_at == "open" and market.open is None:
        raise MarketError(
            f"fill_at: the market has no open prices ({market.notes.source}); set fill_at: close"
        )
    shown: list[Numbers] = []
    turbulent = np.zeros(end - begin, np.bool_)
    if turbulence_threshold is not None:
        if not turbulence_threshold > 0.0:
            raise MarketError(
                f"turbulence_threshold: expected a number above 0, got {turbulence_threshold}"
            )
        ratio = turbulence(market, begin, end) / turbulence_threshold
        turbulent = ratio > 1.0
        shown.append(np.minimum(ratio, _MOST_TURBULENCE)[:, None])
    past = _until(market, end)
    for name in indicators:
        shown.append(_complete(market, f"indicator {name}", relative_indicator(past, name), bars))
    for name in columns:
        if name not in market.columns:
            known = ", ".join(market.columns) or "none"
            raise MarketError(
                f"columns: the market has no {name}{did_you_mean(name, market.columns) or '.'} "
                f"It has {known}"
            )
        numbers = np.broadcast_to(past.columns[name].T, past.close.T.shape).T
        shown.append(_complete(market, f"column {name}", numbers, bars))
    none = np.empty((end - begin, 0))
    fills = market.close if fill_at == "close" else market.open
    assert fills is not None  # checked above
    return PreparedMarket(
        market,
        market.times[begin:end],
        np.ascontiguousarray(market.close[begin:end]),
        np.ascontiguousarray(fills[begin:end]),
        np.concatenate([none, *shown], axis=1).astype(np.float32),
        turbulent,
    )


def _until(market: Market, end: int) -> Market:
    """The market without the bars after a period, so that nothing can read them."""

    def cut(numbers: Numbers | None) -> Numbers | None:
        return None if numbers is None else numbers[:end]

    return replace(
        market,
        times=market.times[:end],
        close=market.close[:end],
        open=cut(market.open),
        high=cut(market.high),
        low=cut(market.low),
        volume=cut(market.volume),
        index=cut(market.index),
        columns={name: column[:end] for name, column in market.columns.items()},
    )


def _complete(market: Market, what: str, numbers: Numbers, bars: tuple[int, int]) -> Numbers:
    """The numbers of a period, which must all be there."""
    begin, end = bars
    wrong: NDArray[np.bool_] = np.any(~np.isfinite(numbers), axis=1)
    if not wrong[begin:end].any():
        return numbers[begin:end]
    if wrong.all():  # up to the period's end
        raise MarketError(
            f"{what}: it has no value up to the period's last bar "
            f"{shown_time(market.times[end - 1])}; it needs more than {end} bars"
        )
    first = int(np.argmin(wrong))
    if wrong[first:].any():  # not only at the beginning
        at = first + int(wrong[first:].argmax())
        raise MarketError(f"{what}: it is no number at {shown_time(market.times[at])}")
    raise MarketError(
        f"{what}: it has no value at the period's first bar {shown_time(market.times[begin])}, "
        f"since it needs {first} earlier bars and there are {begin}; it begins on "
        f"{shown_time(market.times[first])}"
    )
