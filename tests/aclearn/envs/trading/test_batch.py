from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aclearn.envs.trading import Market, TradingBatch, synthetic_market, trading_batch
from aclearn.envs.trading.prepared import PreparedMarket
from aclearn.errors import ArgumentError, MarketError

_MARKET = synthetic_market(stocks=3, days=420, seed=5)
_PERIODS = {"train": ["2021-02-01", "2021-06-30"]}
_SETTINGS: dict[str, Any] = {
    "periods": _PERIODS,
    "indicators": ["macd", "rsi_30", "cci_30", "close_60_sma"],
    "turbulence_threshold": 12.0,
}
_FIELDS = ("open", "high", "low", "close", "volume", "index")


def _batch(market: Market = _MARKET, *, num_envs: int = 5, **settings: Any) -> TradingBatch:
    batch = trading_batch(market, num_envs=num_envs, **{**_SETTINGS, **settings})
    batch.seed(np.arange(num_envs, dtype=np.uint64))
    batch.begin(np.ones(num_envs, np.bool_))
    return batch


def _played(batch: TradingBatch, steps: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """Observations, values and shares after each step with random actions."""
    rng, every = np.random.default_rng(seed), np.ones(batch.num_envs, np.bool_)
    result = []
    for _ in range(steps):
        actions = rng.uniform(-1.0, 1.0, (batch.num_envs, 3))
        rewards = batch.step(actions, every).rewards
        shares = batch.accounts.shares
        result.append((batch.observations(), batch.values, shares.copy(), rewards))
    return result


def _with_another_future(market: Market, bar: int) -> Market:
    """The same bars up to this one, and later ones shuffled and scaled."""
    order = np.arange(len(market.times))
    order[bar + 1 :] = np.random.default_rng(1).permutation(order[bar + 1 :])
    scale = np.where(np.arange(len(order)) > bar, 3.0, 1.0)
    changed = {}
    for name in _FIELDS:
        numbers = getattr(market, name)[order]
        changed[name] = numbers * (scale[:, None] if numbers.ndim == 2 else scale)
    return replace(market, **changed)


@pytest.mark.parametrize("fill_at", ["close", "open"])
def test_nothing_depends_on_the_future(fill_at: str) -> None:
    first = _MARKET.position(_PERIODS["train"][0], key="")
    steps = 40
    last = first + steps  # the last bar that is seen
    same = _played(_batch(fill_at=fill_at), steps)
    other = _played(_batch(_with_another_future(_MARKET, last), fill_at=fill_at), steps + 1)
    for ours, theirs in zip(same, other, strict=False):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    after = _played(_batch(fill_at=fill_at), steps + 1)[-1]
    assert (after[1] != other[-1][1]).any()  # the future was another one


def _prepared(prices: list[float], turbulent: tuple[int, ...] = ()) -> PreparedMarket:
    close = np.array(prices)[:, None]
    times = np.arange("2020-01-01", "2021-01-01", dtype="datetime64[D]")[: len(prices)]
    flags = np.isin(np.arange(len(prices)), turbulent)
    market = Market(times.astype("datetime64[s]"), ("AA",), close)
    none = np.empty((len(prices), 0), np.float32)
    return PreparedMarket(market, market.times, close, close, none, flags)


def _alone(prepared: PreparedMarket, **settings: Any) -> TradingBatch:
    rules = trading_batch(_MARKET, num_envs=1, periods=_PERIODS, **settings).rules
    batch = TradingBatch(prepared, rules, num_envs=1)
    batch.begin(np.ones(1, np.bool_))
    return batch


def _step(batch: TradingBatch, action: float) -> float:
    return float(batch.step(np.array([[action]]), np.ones(1, np.bool_)).rewards[0])


def test_an_order_is_filled_at_the_next_bar_and_rewarded_from_then() -> None:
    batch = _alone(_prepared([10.0, 20.0, 30.0, 30.0]), initial_cash=4000.0, cost=0.01)
    # 100 shares at 20, of which the costs are lost at once
    assert _step(batch, 1.0) == pytest.approx(-20.0 / 4000.0)
    assert batch.accounts.cash[0] == 4000.0 - 2020.0
    assert _step(batch, 0.0) == pytest.approx(1000.0 / 4000.0)
    seen = batch.observations()[0]
    # cash, the shares' value and that of an order of 100, in the initial cash
    np.testing.assert_allclose(seen, [1980.0 / 4000.0, 3000.0 / 4000.0, 3000.0 / 4000.0])


def test_after_a_turbulent_bar_everything_is_sold_and_nothing_bought() -> None:
    batch = _alone(_prepared([10.0, 10.0, 10.0, 10.0, 10.0], turbulent=(3,)))
    for _ in range(3):
        _step(batch, 1.0)
    assert batch.bars[0] == 3 and batch.accounts.shares[0, 0] == 300.0
    _step(batch, 1.0)
    assert batch.accounts.shares[0, 0] == 0.0


def test_the_batch_is_what_single_environments_are() -> None:
    settings = {"window": 7, "random_accounts": True}
    together = _batch(num_envs=4, **settings)
    rng = np.random.default_rng(3)
    alone = [trading_batch(_MARKET, num_envs=1, **_SETTINGS, **settings) for _ in range(4)]
    for b, batch in enumerate(alone):
        batch.seed(np.array([b], np.uint64))
        batch.begin(np.ones(1, np.bool_))
    for _ in range(4):
        for _ in range(7):
            actions = rng.uniform(-1.0, 1.0, (4, 3))
            step = together.step(actions, np.ones(4, np.bool_))
            seen = together.observations()
            for b, batch in enumerate(alone):
                single = batch.step(actions[b : b + 1], np.ones(1, np.bool_))
                assert single.rewards[0] == step.rewards[b]
                assert single.ended[0] == step.ended[b]
                np.testing.assert_array_equal(batch.observations()[0], seen[b])
        assert step.ended.all()
        for batch in (together, *alone):
            batch.begin(np.ones(batch.num_envs, np.bool_))


def test_rows_that_do_not_step_stay_as_they_are() -> None:
    batch = _batch(num_envs=2)
    rng = np.random.default_rng(0)
    for _ in range(5):
        batch.step(rng.uniform(-1, 1, (2, 3)), np.ones(2, np.bool_))
    before = batch.observations(), batch.values
    step = batch.step(np.ones((2, 3)), np.array([True, False]))
    assert step.rewards[1] == 0.0 and not step.ended[1]
    np.testing.assert_array_equal(batch.observations()[1], before[0][1])
    assert (batch.observations()[0] != before[0][0]).any()
    assert batch.values[1] == before[1][1]


def test_windows_begin_at_every_bar_where_they_fit() -> None:
    batch = _batch(num_envs=4000, window=100)
    T = len(batch.prepared.times)
    assert set(batch.bars.tolist()) == set(range(T - 100))
    first = batch.bars.copy()
    batch.begin(np.ones(4000, np.bool_))
    assert (batch.bars != first).mean() > 0.8


def test_random_accounts_are_worth_the_initial_cash_within_five_percent() -> None:
    batch = _batch(num_envs=4000, random_accounts=True)
    values = batch.values / 1e6
    assert 0.95 <= values.min() < 0.951 and 1.049 < values.max() <= 1.05
    shares = batch.accounts.shares
    assert set(np.unique(shares)) == set(range(64))
    np.testing.assert_allclose(
        batch.accounts.value(batch.prepared.prices[batch.bars]), 1e6 * values
    )


def test_cash_of_a_whole_number_is_no_integer() -> None:
    batch = _batch(initial_cash=1_000_000, random_accounts=True)
    assert batch.values[0] != round(batch.values[0])


def test_the_figures_of_an_episode() -> None:
    batch = _alone(_prepared([10.0, 20.0, 25.0]), initial_cash=4000.0, cost=0.01)
    _step(batch, 1.0)
    _step(batch, -1.0)
    costs = 20.0 + 25.0
    expected = {
        "total_return": (500.0 - costs) / 4000.0,
        "costs": costs / 4000.0,
        "turnover": 4500.0 / 4000.0,
        "equal_weight_return": 1.5,
    }
    assert {name: f[0] for name, f in batch.figures().items()} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"window": 108}, MarketError, "window: expected 1 to 107 steps, since the period has 108"),
        ({"window": 0}, MarketError, "window: expected 1 to 107"),
        (
            {"periods": {"train": ["2020-02-03", "2020-06-30"]}, "turbulence_threshold": None},
            MarketError,
            "macd: it has no value at the period's first bar 2020-02-03, since it needs 33 earlier",
        ),
        ({"fill_at": "noon"}, MarketError, "fill_at: expected close or open, got 'noon'"),
        (
            {"turbulence_threshold": 0.0},
            MarketError,
            "turbulence_threshold: expected a number abov",
        ),
        ({"columns": ["news"]}, MarketError, "columns: the market has no news"),
        ({"indicators": ["macd", "macd"]}, MarketError, "indicators: macd is there twice"),
        (
            {"random_accounts": True, "initial_cash": 1000.0},
            ArgumentError,
            "random_accounts: 63 shares of each stock cost up to",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        _batch(**settings)


def test_a_market_shorter_than_its_indicators_is_refused() -> None:
    market = synthetic_market(stocks=2, days=40)
    periods = {"train": ["2020-02-03", "2020-02-14"]}
    with pytest.raises(MarketError, match=r"it has no value up to .* it needs more than 33 bars"):
        trading_batch(market, num_envs=1, periods=periods, indicators=["close_60_sma"])


def test_a_market_without_open_prices_fills_at_closes_only() -> None:
    with pytest.raises(MarketError, match="fill_at: the market has no open prices"):
        trading_batch("sp500_20", num_envs=1, periods=_PERIODS, fill_at="open")


def test_columns_of_the_users_own_are_shown_as_they_are() -> None:
    T = len(_MARKET.times)
    news, rate = np.arange(3.0 * T).reshape(T, 3), np.arange(T) / 7.0
    market = replace(_MARKET, columns={"news": news, "rate": rate})
    batch = trading_batch(market, num_envs=1, periods=_PERIODS, columns=["rate", "news"])
    first = market.position(_PERIODS["train"][0], key="")
    expected = [*[rate[first]] * 3, *news[first]]
    np.testing.assert_allclose(batch.prepared.features[0], expected, rtol=1e-6)
    rate[first + 5] = np.nan
    with pytest.raises(MarketError, match="column rate: it is no number at 2021-02-08"):
        trading_batch(market, num_envs=1, periods=_PERIODS, columns=["rate"])
