from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from aclearn.envs.trading import load_market, synthetic_market
from aclearn.envs.trading.indicators import indicator, relative_indicator
from aclearn.errors import MarketError

_MARKET = synthetic_market(stocks=2, days=900, seed=3)
#: Bars after which averages have forgotten how they began, which the two libraries do differently.
_FORGOTTEN = 700
_NAMES = (
    "macd", "boll_ub", "boll_lb", "rsi_30", "cci_30", "dx_30", "close_30_sma", "close_60_sma",
    "mfi_14", "rsi_6",
)  # fmt: skip


def _by_stockstats(name: str, stock: int) -> np.ndarray:
    import pandas
    import stockstats

    columns = ("open", "high", "low", "close", "volume")
    frame = pandas.DataFrame({c: getattr(_MARKET, c)[:, stock] for c in columns})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = stockstats.StockDataFrame.retype(frame)
        values = np.asarray(table[name])
        if name.startswith("boll_"):  # of the sample's deviation there, of the population's here
            middle = np.asarray(table["boll"])
            values = middle + (values - middle) * np.sqrt(19 / 20)
    return 100.0 * values if name.startswith("mfi") else values


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("stock", [0, 1])
def test_indicators_are_those_of_stockstats(name: str, stock: int) -> None:
    ours = indicator(_MARKET, name)[_FORGOTTEN:, stock]
    np.testing.assert_allclose(ours, _by_stockstats(name, stock)[_FORGOTTEN:], rtol=1e-7, atol=1e-7)


def test_beta_is_the_slope_of_returns_over_the_index() -> None:
    of_stock = _MARKET.close[1:, 1] / _MARKET.close[:-1, 1] - 1.0
    assert _MARKET.index is not None
    of_index = _MARKET.index[1:] / _MARKET.index[:-1] - 1.0
    slope = np.polyfit(of_index[-30:], of_stock[-30:], 1)[0]
    assert indicator(_MARKET, "beta_30")[-1, 1] == pytest.approx(slope, rel=1e-9)


@pytest.mark.parametrize("name", _NAMES)
def test_a_policy_sees_numbers_of_a_size_that_no_price_changes(name: str) -> None:
    seen = relative_indicator(_MARKET, name)
    assert np.nanmax(np.abs(seen)) < 5.0
    # macd / p is small, sma / p - 1 too
    expected = indicator(_MARKET, name)
    if "sma" in name or "boll" in name:
        expected = expected / _MARKET.close - 1.0
        np.testing.assert_allclose(seen, expected)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("cci_30", "high and low"),
        ("dx_30", "high and low"),
        ("mfi_14", "high and low and volume"),
        ("beta_30", "index"),
    ],
)
def test_adjusted_closes_alone_refuse_what_needs_more(name: str, missing: str) -> None:
    with pytest.raises(MarketError, match=f"indicator {name}: it needs {missing}, which the mark"):
        indicator(load_market("sp500_20"), name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rsi", "indicator 'rsi' is unknown; did you mean rsi_30"),
        ("rsi_1", "rsi_1: expected at least 2 bars"),
    ],
)
def test_an_unknown_indicator_is_named_with_those_that_exist(name: str, message: str) -> None:
    with pytest.raises(MarketError, match=message):
        indicator(_MARKET, name)


def test_without_talib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "talib", None)
    with pytest.raises(MarketError, match=r"talib is not installed; pip install 'aclearn\[finance"):
        indicator(_MARKET, "macd")
