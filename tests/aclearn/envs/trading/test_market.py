from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aclearn.envs.trading import Market, load_market
from aclearn.envs.trading.periods import bars_of_period
from aclearn.errors import MarketError

_TIMES = np.arange("2020-01-01", "2020-01-07", dtype="datetime64[D]").astype("datetime64[s]")


def _market(times: Any = _TIMES, change: Any = None, **columns: Any) -> Market:
    """Two stocks at six days; `change` writes into their closes."""
    close = np.arange(1.0, 13.0).reshape(6, 2)
    if change is not None:
        close[change[0]] = change[1]
    return Market(times, ("AA", "BB"), close, **columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (((2, 1), 0.0), "close of BB: 0 at 2020-01-03, expected a price above 0"),
        (((3, 0), -4.0), "close of AA: -4 at 2020-01-04, expected a price above 0"),
        (((3, 0), np.inf), "close of AA: inf at 2020-01-04"),
        (((2, 1), np.nan), r"close of BB: it is missing \(NaN\) at 2020-01-03.*market.fill"),
        (((slice(0, 2), 1), np.nan), "close of BB: its first price is of 2020-01-03, and the mark"),
        (((slice(4, 6), 0), np.nan), "close of AA: its last price is of 2020-01-04, and the mark"),
        (((slice(0, 6), 0), np.nan), "close of AA: it has no price at all"),
    ],
)
def test_prices_that_cannot_be_traded_at_are_named(change: Any, message: str) -> None:
    with pytest.raises(MarketError, match=message):
        _market(change=change)


def _at(*days: str) -> Any:
    return np.array(days, "datetime64[s]")


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (np.sort(np.append(_TIMES[1:], _TIMES[3])), "2020-01-04 is there twice"),
        (_TIMES[::-1], "2020-01-05 comes after a later one; sort"),
        (np.append(_TIMES[:5], _at("2020-02-01")), "2020-02-01 comes after a gap of more than 10"),
        (np.append(_TIMES[:5], _at("NaT")), "bar 5 has no date"),
        (
            _TIMES[0] + np.array([1, 2, 3, 5, 6, 7]) * np.timedelta64(60, "s"),
            "bars are missing before 2020-01-01 00:05:00, in the middle of a day",
        ),
        (_TIMES.astype(np.int64), "times: expected datetime64"),
    ],
)
def test_times_that_are_not_those_of_a_market_are_named(times: Any, message: str) -> None:
    with pytest.raises(MarketError, match=message):
        _market(times)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"high": np.ones((6, 1))}, r"high: expected the shape \(6, 2\), got \(6, 1\)"),
        ({"low": np.full((6, 2), np.nan)}, "low of AA: it has no price at all"),
        ({"volume": np.full((6, 2), -1.0)}, "volume of AA: -1 at 2020-01-01, expected a number of"),
        ({"index": np.zeros(6)}, "index of index: 0 at 2020-01-01"),
        ({"columns": {"news": np.ones(5)}}, "column news: expected the shape"),
    ],
)
def test_other_columns_are_checked_too(columns: Any, message: str) -> None:
    with pytest.raises(MarketError, match=message):
        _market(**columns)


def test_stocks_have_different_names() -> None:
    with pytest.raises(MarketError, match="different names"):
        Market(_TIMES, ("AA", "AA"), np.ones((6, 2)))


def test_the_shipped_market_is_whole_and_says_what_it_lacks() -> None:
    market = load_market("sp500_20")
    assert market.close.shape == (8313, 20) and market.bars_per_year == 252
    assert market.names[:2] == ("AAPL", "AMD") and market.close[0, 0] == 0.264
    assert str(market.times[-1]) == "2022-12-28T00:00:00"
    assert "those that failed are missing" in market.notes.survivorship


_PERIODS = {
    "train": ["2020-01-01", "2020-01-02"],
    "validation": ["2020-01-03", "2020-01-04"],
    "test": ["2020-01-05", "2020-01-06"],
}


def test_a_period_has_the_bars_of_both_its_dates() -> None:
    assert [bars_of_period(_market(), _PERIODS, p) for p in _PERIODS] == [(0, 2), (2, 4), (4, 6)]
    minutes = _TIMES[0] + 10 * 3600 + np.arange(6) * np.timedelta64(60, "s")
    to_third = {"train": ["2020-01-01", "2020-01-01 10:02"]}
    assert bars_of_period(_market(minutes), to_third, "train") == (0, 3)
    assert _market(minutes).bars_per_year == 6 * 252


@pytest.mark.parametrize(
    ("changes", "period", "message"),
    [
        ({"validation": ["2020-01-02", "2020-01-04"]}, "train", "validation begins on 2020-01-02, "
         "before the end of train on 2020-01-02"),
        ({"test": ["2020-01-04", "2020-01-06"]}, "train", "test begins on 2020-01-04"),
        ({"train": ["2020-01-05", "2020-01-06"]}, "test", "validation begins on 2020-01-03"),
        ({"trial": ["2020-01-01", "2020-01-06"]}, "train", "periods: 'trial' is none of train"),
        ({"train": ["2019-01-01", "2019-02-01"]}, "train", "periods.train: expected at least 2"),
        ({"train": ["2020-01-01"]}, "train", "periods.train: expected two dates"),
        ({"train": ["then", "2020-01-02"]}, "train", "periods.train: expected a date such as"),
        ({}, "live", "period: 'live' is none of train, validation, test"),
    ],
)  # fmt: skip
def test_periods_that_overlap_or_do_not_exist_are_refused(
    changes: dict[str, list[str]], period: str, message: str
) -> None:
    with pytest.raises(MarketError, match=message):
        bars_of_period(_market(), _PERIODS | changes, period)


def test_without_periods_there_is_nothing_to_play_in() -> None:
    with pytest.raises(MarketError, match="expected the first and last date of train, got none"):
        bars_of_period(_market(), {}, "train")
