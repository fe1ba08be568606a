"""Training, validation and test: parts of a market that follow one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from aclearn.envs.trading.market import Market, shown_time
from aclearn.errors import MarketError

#: In the order of their times: what is judged must come after what was learned.
NAMES = ("train", "validation", "test")


def bars_of_period(
    market: Market, periods: Mapping[str, Sequence[str]], period: str
) -> tuple[int, int]:
    """The first bar of a period and the bar after its last one.

    Args:
        periods: some of `NAMES` → first and last date, both included.

    Raises:
        MarketError: an unknown name, a period without bars, or two that overlap or are in another
            order: figures of a test would then know what was learned.
    """
    known = ", ".join(NAMES)
    unknown = [name for name in periods if name not in NAMES]
    if unknown:
        raise MarketError(f"periods: {unknown[0]!r} is none of {known}")
    if period not in periods:
        raise MarketError(
            f"period: {period!r} is none of {', '.join(periods)}, which periods name"
            if periods
            else f"periods: expected the first and last date of {period}, got none"
        )
    bars = {name: _bars(market, name, periods[name]) for name in NAMES if name in periods}
    in_order = list(bars)
    for earlier, later in pairwise(in_order):
        if bars[earlier][1] > bars[later][0]:
            raise MarketError(
                f"periods: {later} begins on {shown_time(market.times[bars[later][0]])}, before "
                f"the end of {earlier} on {shown_time(market.times[bars[earlier][1] - 1])}; they "
                f"must not overlap, and follow one another ({known})"
            )
    return bars[period]


def _bars(market: Market, name: str, dates: Sequence[str]) -> tuple[int, int]:
    if isinstance(dates, str) or len(dates) != 2:
        raise MarketError(f"periods.{name}: expected two dates, first and last, got {dates!r}")
    first, last = (str(date) for date in dates)
    begin = market.position(first, key=f"periods.{name}")
    end = market.position(last, key=f"periods.{name}", after=True)
    if end - begin < 2:
        raise MarketError(
            f"periods.{name}: expected at least 2 bars from {first} to {last}; the market goes "
            f"from {shown_time(market.times[0])} to {shown_time(market.times[-1])}"
        )
    return begin, end
