"""Where a market comes from: one that is shipped, a file, or a generator."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from aclearn.envs.trading.loaders import load_file
from aclearn.envs.trading.market import Market, MarketNotes
from aclearn.envs.trading.synthetic import synthetic_market
from aclearn.errors import MarketError, did_you_mean

#: Markets that come with aclearn: name → file in data/ and what must be said of it.
_SHIPPED = {
    "sp500_20": (
        "sp500_20.csv.gz",
        MarketNotes(
            source="20 stocks of the S&P 500, daily, 1990-01-02 to 2022-12-28, of skfolio",
            calendar="trading days of the New York Stock Exchange",
            splits="closes adjusted for splits and dividends; no other prices, no volume",
            survivorship="stocks that were listed over the whole span: those that failed are "
            "missing, so that every figure is too good",
        ),
    )
}


def load_market(market: str | Mapping[str, Any]) -> Market:
    """The market that a configuration names.

    Args:
        market: the name of a shipped one (`sp500_20`), the path of a file, or a mapping: `path`
            and other arguments of `load_file`, or `synthetic`, a mapping of the arguments of
            `synthetic_market`.

    Raises:
        MarketError: there is none of this name, or the file cannot be used.
    """
    if isinstance(market, str):
        if market in _SHIPPED:
            return _shipped(market)
        if "." not in market:
            raise MarketError(
                f"market: {market!r} is none of {', '.join(_SHIPPED)}"
                f"{did_you_mean(market, _SHIPPED) or '.'} A file is named with its suffix: "
                f"{market}.csv"
            )
        return load_file(market)
    arguments = dict(market)
    synthetic = arguments.pop("synthetic", None)
    make = load_file if synthetic is None else synthetic_market
    if synthetic is not None and arguments:
        raise MarketError(f"market: synthetic stands alone, got {', '.join(arguments)} too")
    try:
        return make(**(arguments if synthetic is None else synthetic))
    except TypeError as error:
        raise MarketError(f"market: {error}") from error


@lru_cache
def _shipped(name: str) -> Market:
    file, notes = _SHIPPED[name]
    packed = files("aclearn.envs.trading").joinpath("data", file).read_bytes()
    header, *rows = csv.reader(gzip.decompress(packed).decode().splitlines())
    times = np.array([row[0] for row in rows], "datetime64[s]")
    closes = np.array([row[1:] for row in rows], np.float64)
    return Market(times, tuple(header[1:]), closes, notes=notes)
