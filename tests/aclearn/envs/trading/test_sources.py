from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclearn.envs.trading import Market, load_market, synthetic_market
from aclearn.errors import MarketError

_WIDE = "Date,AA,BB\n2020-01-02,1.5,10\n2020-01-03,2,11\n2020-01-06,2.5,12\n"
_LONG = (
    "date,open,high,low,close,volume,tic,news\n"
    "2020-01-02,1,2,0.5,1.5,100,AA,0.25\n2020-01-02,9,11,8,10,50,BB,-1\n"
    "2020-01-03,1.5,2,1,2,100,AA,\n2020-01-03,10,12,9,11,50,BB,3\n"
)


def _load(tmp_path: Path, text: str, **arguments: Any) -> Market:
    path = tmp_path / "bars.csv"
    path.write_text(text)
    return load_market({"path": str(path), **arguments})


def test_a_wide_file_has_closes(tmp_path: Path) -> None:
    market = _load(tmp_path, _WIDE, splits="adjusted", calendar="NYSE")
    assert market.names == ("AA", "BB") and market.open is None
    assert market.close.tolist() == [[1.5, 10.0], [2.0, 11.0], [2.5, 12.0]]
    assert (market.notes.splits, market.notes.survivorship) == ("adjusted", "not stated")
    packed = tmp_path / "bars.csv.gz"
    packed.write_bytes(gzip.compress(_WIDE.encode()))
    np.testing.assert_array_equal(load_market(str(packed)).close, market.close)


def test_a_long_file_has_bars_and_columns_of_the_users_own(tmp_path: Path) -> None:
    market = _load(tmp_path, _LONG)
    assert market.names == ("AA", "BB")
    assert market.close.tolist() == [[1.5, 10.0], [2.0, 11.0]]
    assert market.high is not None and market.high.tolist() == [[2.0, 11.0], [2.0, 12.0]]
    assert market.volume is not None and market.volume.tolist() == [[100.0, 50.0]] * 2
    np.testing.assert_array_equal(market.columns["news"], [[0.25, -1.0], [np.nan, 3.0]])


def test_parquet_holds_the_same_minutes(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    bars = synthetic_market(stocks=2, days=3, bars_per_day=390, seed=2)
    T = len(bars.times)
    columns: dict[str, Any] = {
        "timestamp": np.repeat(bars.times, 2),
        "symbol": np.tile(bars.names, T).tolist(),
    }
    for name in ("open", "high", "low", "close", "volume"):
        columns[name] = getattr(bars, name).reshape(-1)
    path = tmp_path / "bars.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    market = load_market(str(path))
    np.testing.assert_array_equal(market.times, bars.times)
    for name in ("open", "high", "low", "close", "volume"):
        np.testing.assert_array_equal(getattr(market, name), getattr(bars, name))
    assert market.bars_per_year == 252 * 390


def test_one_stock_may_be_the_index(tmp_path: Path) -> None:
    market = _load(tmp_path, _WIDE, index="BB")
    assert market.names == ("AA",)
    assert market.index is not None and market.index.tolist() == [10.0, 11.0, 12.0]


def test_short_gaps_are_filled_where_that_is_allowed(tmp_path: Path) -> None:
    rows = [
        f"2020-01-{d:02d},{c},{d}\n"
        for d, c in zip(range(2, 8), ["5", "", "", "6", "", "7"], strict=True)
    ]
    text = "date,AA,BB\n" + "".join(rows)
    assert _load(tmp_path, text, fill=2).close[:, 0].tolist() == [5, 5, 5, 6, 6, 7]
    with pytest.raises(MarketError, match=r"close of AA: it is missing .* at 2020-01-03"):
        _load(tmp_path, text, fill=1)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("Date,AA\n2020-01-02,1\n2020-01-02,2\n", {}, "2020-01-02 is there twice"),
        (_LONG + "2020-01-03,1,1,1,1,1,AA,1\n", {}, "bar of AA at 2020-01-03.* is there twice"),
        ("Date,AA\n2020-01-02,one\n", {}, "column AA has a value that is no number"),
        ("Date,AA\n02.01.2020,1\n", {}, "a time is not ISO 8601"),
        ("Date,AA\n2020-01-02\n", {}, "row 2 has 1 values, expected 2"),
        ("AA,BB\n1,2\n", {}, r"no column of times \(date, .*only AA, BB"),
        ("date,tic,open\n2020-01-02,AA,2\n", {}, "it has no column close"),
        ("date,AA,AA\n2020-01-02,1,2\n", {}, "two columns have one name"),
        ("", {}, "it has no bars"),
        ("date,AA\n", {}, "it has no bars"),
        (_LONG.replace("12,9", ",9"), {"fill": 3}, "high of BB: its last price is of 2020-01-02"),
        (_WIDE, {"stocks": ["CC"]}, "it has no stock 'CC', only AA, BB"),
        (
            _WIDE,
            {"stock": ["AA"]},
            "market: load_file.. got an unexpected keyword argument 'stock'",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_place(
    tmp_path: Path, text: str, arguments: Any, message: str
) -> None:
    with pytest.raises(MarketError, match=message):
        _load(tmp_path, text, **arguments)


@pytest.mark.parametrize(
    ("market", "message"),
    [
        ("sp500", "market: 'sp500' is none of sp500_20; did you mean sp500_20"),
        ("none.csv", "none.csv: it cannot be read"),
        ("bars.xlsx", "expected a .csv, .csv.gz or .parquet file"),
        ({"synthetic": {"days": 1}}, "synthetic: expected at least 1 stock, 2 days"),
        ({"synthetic": {"bars_per_day": 7}}, "bars_per_day that divides 390"),
        ({"synthetic": {}, "path": "x.csv"}, "synthetic stands alone, got path too"),
    ],
)
def test_a_market_that_does_not_exist_is_refused(market: Any, message: str) -> None:
    with pytest.raises(MarketError, match=message):
        load_market(market)


def test_synthetic_bars_are_those_of_a_market_and_say_that_they_are_invented() -> None:
    market = synthetic_market(stocks=4, days=400, bars_per_day=39, seed=1)
    assert market.high is not None and market.low is not None and market.open is not None
    assert (market.high >= np.maximum(market.open, market.close)).all()
    assert (market.low <= np.minimum(market.open, market.close)).all()
    np.testing.assert_array_equal(market.open[1:], market.close[:-1])
    assert str(market.times[0]) == "2020-01-01T09:40:00" and market.bars_per_day == 39
    returns = np.diff(np.log(market.close), axis=0)
    yearly = returns.std(axis=0) * np.sqrt(market.bars_per_year)
    assert (abs(yearly - 0.3) < 0.15).all()
    common = np.corrcoef(returns.T)[np.triu_indices(4, 1)]
    assert (abs(common - 0.4) < 0.1).all()
    of_day = abs(np.diff(np.log(market.close), axis=0, prepend=np.log(market.open[:1])))
    by_bar = of_day.reshape(400, 39, 4).mean(axis=(0, 2))
    assert by_bar[0] > 1.5 * by_bar[19] < by_bar[-1]
    assert "synthetic" in market.notes.source and "invented" in market.notes.source
    again = synthetic_market(stocks=4, days=400, bars_per_day=39, seed=1)
    np.testing.assert_array_equal(market.close, again.close)
