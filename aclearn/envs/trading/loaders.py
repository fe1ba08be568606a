"""Bars of a file, CSV or Parquet, in wide or long form."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.envs.trading.extra import finance
from aclearn.envs.trading.market import Market, MarketNotes, Numbers, Times
from aclearn.errors import MarketError, words_of

#: Names of columns, in lower case.
_TIME = ("date", "datetime", "time", "timestamp")
_STOCK = ("symbol", "ticker", "tic", "stock", "name")
_BARS = ("open", "high", "low", "close", "volume")


def load_file(
    path: str | Path,
    *,
    stocks: Sequence[str] = (),
    fill: int = 0,
    index: str | None = None,
    calendar: str = "not stated",
    splits: str = "not stated",
    survivorship: str = "not stated",
) -> Market:
    """The market of a `.csv`, `.csv.gz` or `.parquet` file with bars of any length.

    Wide: a column of times and one of closes for each stock. Long: times, a column of stocks
    (`symbol`, `ticker` or `tic`), `close`, and where there are any `open`, `high`, `low`, `volume`;
    all other columns of numbers are the user's own (`Market.columns`). Rows of a long file may be
    in any order of stocks, but each stock's must be in order of time. Times are ISO 8601 or, in
    Parquet, timestamps; they are taken as they are, without a time zone.

    Args:
        stocks: the ones to take; all by default.
        fill: most bars in a row, missing after a stock's first one, that its last close fills.
        index: a stock of the file that is an index: `Market.index`, and not traded.
        calendar, splits, survivorship: see `MarketNotes`.

    Raises:
        MarketError: the file cannot be read or its bars cannot be used; it names where. Or it is
            Parquet, and pyarrow is not installed.
    """
    path = Path(path)
    table = _read(path)
    lower = {name.lower(): name for name in table}
    time = next((lower[name] for name in _TIME if name in lower), None)
    if time is None:
        raise MarketError(
            f"market {path}: it has no column of times ({', '.join(_TIME)}), only "
            f"{', '.join(map(str, table))}"
        )
    by_stock = next((lower[name] for name in _STOCK if name in lower), None)
    times = _times(path, table.pop(time))
    if by_stock is None:
        columns: dict[str, Numbers] = {}
        names = list(table)
        numbers = [_numbers(path, name, table[name]) for name in names]
        bars = {"close": np.stack(numbers, axis=1) if numbers else np.empty((len(times), 0))}
    else:
        times, names, bars, columns = _pivoted(path, times, table, by_stock)
    if "close" not in bars:
        raise MarketError(f"market {path}: it has no column close")
    wanted = list(stocks) or [name for name in names if name != index]
    for name in [*wanted, *([index] if index else [])]:
        if name not in names:
            raise MarketError(f"market {path}: it has no stock {name!r}, only {', '.join(names)}")
    of = [names.index(name) for name in wanted]
    filled = {name: _filled(numbers, fill, name == "volume") for name, numbers in bars.items()}
    for name in ("open", "high", "low"):  # a bar without trades has the close before it
        if fill and name in filled:
            without = np.isnan(bars["close"]) & np.isnan(bars[name])
            filled[name] = np.where(without, filled["close"], bars[name])
    chosen = {name: numbers[:, of] for name, numbers in filled.items()}
    return Market(
        times,
        tuple(wanted),
        chosen["close"],
        chosen.get("open"),
        chosen.get("high"),
        chosen.get("low"),
        chosen.get("volume"),
        index=filled["close"][:, names.index(index)] if index else None,
        columns={name: numbers[:, of] for name, numbers in columns.items()},
        notes=MarketNotes(str(path), calendar, splits, survivorship),
    )


def _read(path: Path) -> dict[str, Any]:
    """Column name → its values."""
    try:
        if path.suffix == ".parquet":
            read = finance("pyarrow.parquet").read_table(path)
            return {name: read[name].to_numpy(zero_copy_only=False) for name in read.column_names}
        if path.suffix == ".csv" or path.name.endswith(".csv.gz"):
            packed = path.read_bytes()
            text = gzip.decompress(packed) if path.suffix == ".gz" else packed
            rows = list(csv.reader(text.decode("utf-8-sig").splitlines()))
            rows = [row for row in rows if row]
            if len(rows) < 2:
                raise MarketError(f"market {path}: it has no bars")
            for number, row in enumerate(rows, 1):
                if len(row) != len(rows[0]):
                    raise MarketError(
                        f"market {path}: row {number} has {len(row)} values, expected "
                        f"{len(rows[0])}"
                    )
            if len({name.lower() for name in rows[0]}) < len(rows[0]):
                raise MarketError(f"market {path}: two columns have one name: {rows[0]}")
            return dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    except (OSError, ValueError) as error:  # pyarrow's errors are of both kinds
        raise MarketError(f"market {path}: it cannot be read ({words_of(error)})") from error
    raise MarketError(f"market {path}: expected a .csv, .csv.gz or .parquet file")


def _times(path: Path, values: Any) -> Times:
    try:
        return np.asarray(values).astype("datetime64[s]")
    except (ValueError, TypeError) as error:
        raise MarketError(
            f"market {path}: a time is not ISO 8601, such as 2018-12-31 or 2018-12-31 15:59 "
            f"({words_of(error)})"
        ) from error


def _numbers(path: Path, name: str, values: Any) -> Numbers:
    """Numbers of a column; empty cells are NaN."""
    array = np.asarray(values)
    try:
        if array.dtype.kind in "OUS":
            array = np.array([np.nan if v in ("", None) else float(v) for v in array])
        return array.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise MarketError(
            f"market {path}: column {name} has a value that is no number ({words_of(error)})"
        ) from error


def _pivoted(
    path: Path, times: Times, table: Mapping[str, Any], by_stock: str
) -> tuple[Times, list[str], dict[str, Numbers], dict[str, Numbers]]:
    """Times, stocks, bars and other columns [T, n] of a long table."""
    symbols = np.asarray(table[by_stock]).astype(str)
    names, column = np.unique(symbols, return_inverse=True)
    for i, name in enumerate(names):
        steps = np.diff(times[column == i])
        if (steps <= np.timedelta64(0)).any():
            at = times[column == i][1:][steps <= np.timedelta64(0)][0]
            raise MarketError(
                f"market {path}: the bar of {name} at {at} is there twice or comes after a later "
                "one; sort the rows by time and keep one of each"
            )
    all_times, row = np.unique(times, return_inverse=True)

    def wide(name: str) -> Numbers:
        result = np.full((len(all_times), len(names)), np.nan)
        result[row, column] = _numbers(path, name, table[name])
        return result

    others = [name for name in table if name != by_stock]
    bars = {name.lower(): wide(name) for name in others if name.lower() in _BARS}
    own = {name: wide(name) for name in others if name.lower() not in _BARS}
    return all_times, [str(name) for name in names], bars, own


def _filled(numbers: Numbers, most: int, is_volume: bool) -> Numbers:
    """NaN after a number, at most `most` in a row, becomes that number; of a volume 0."""
    if not most:
        return numbers
    known = ~np.isnan(numbers)
    rows = np.arange(len(numbers))[:, None]
    last: NDArray[np.int64] = np.maximum.accumulate(np.where(known, rows, -1), axis=0)
    later = np.flip(np.logical_or.accumulate(np.flip(known, 0), axis=0), 0)
    # the whole gap must be short: its length, counted from its last bar backwards
    upcoming = np.flip(
        np.minimum.accumulate(np.flip(np.where(known, rows, len(numbers)), 0), axis=0), 0
    )
    short = ~known & (last >= 0) & later & (upcoming - last - 1 <= most)
    columns = np.broadcast_to(np.arange(numbers.shape[1]), numbers.shape)
    filling = np.zeros_like(numbers) if is_volume else numbers[np.maximum(last, 0), columns]
    return np.where(short, filling, numbers)
