from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aclearn.envs.trading import Rules
from aclearn.envs.trading.mdp import Accounts, fill, orders_of
from aclearn.errors import ArgumentError


def _one(cash: float, shares: list[int], orders: list[int], prices: list[float], **rules: Any):
    accounts = Accounts(np.array([cash]), np.array([shares], np.float64))
    filled = fill(
        accounts, np.array([orders], np.float64), np.array([prices]), Rules(h_max=1000, **rules)
    )
    return filled.accounts.cash[0], filled.accounts.shares[0].tolist(), filled


def test_actions_are_whole_shares_and_small_orders_are_ignored() -> None:
    actions = np.array([[-1.0, -0.109, 0.0, 0.1, 0.119, 1.0]])
    assert orders_of(actions, Rules()).tolist() == [[-100, -10, 0, 10, 11, 100]]
    assert orders_of(actions, Rules(least_order=10)).tolist() == [[-100, 0, 0, 0, 11, 100]]


def test_both_sides_pay_costs() -> None:
    cash, shares, filled = _one(1000.0, [5, 0], [-2, 3], [10.0, 20.0], cost=0.01)
    assert shares == [3, 3]
    assert cash == pytest.approx(1000 + 20 * 0.99 - 60 * 1.01)
    assert filled.traded[0] == pytest.approx(80.0)
    assert filled.costs[0] == pytest.approx(0.8)


def test_no_more_is_sold_than_there_is() -> None:
    assert _one(0.0, [5], [-8], [10.0], cost=0.0)[:2] == (50.0, [0])


def test_sells_come_before_buys_whatever_the_order_of_the_stocks() -> None:
    # without the proceeds of the last stock the first could not be bought
    cash, shares, _ = _one(0.0, [0, 10], [9, -10], [10.0, 10.0], cost=0.001)
    assert shares == [9, 0] and cash == pytest.approx(99.9 - 90.09)


def test_what_can_be_bought_includes_the_costs() -> None:
    # ten shares cost 100 and 1 of costs: nine can be paid
    assert _one(100.0, [0], [10], [10.0], cost=0.01)[1] == [9]
    assert _one(101.0, [0], [10], [10.0], cost=0.01)[1] == [10]


def test_buys_beyond_the_cash_are_filled_in_proportion() -> None:
    cash, shares, _ = _one(600.0, [0, 0, 0], [100, 200, 0], [1.0, 5.0, 2.0], cost=0.0)
    # 1100 wanted, 600 there: 54.5 and 109.09 shares
    assert shares == [54, 109, 0] and cash == 600 - 54 - 545


def test_accounts_stay_at_or_above_zero_and_value_is_lost_to_costs_alone() -> None:
    rng, B, n = np.random.default_rng(0), 2000, 7
    prices = rng.uniform(0.1, 400.0, (B, n))
    accounts = Accounts(rng.uniform(0, 3e4, B), rng.integers(0, 60, (B, n)).astype(np.float64))
    rules = Rules(cost=0.002)
    filled = fill(accounts, orders_of(rng.uniform(-1, 1, (B, n)), rules), prices, rules)
    after = filled.accounts
    assert after.cash.min() >= 0.0 and after.shares.min() >= 0.0
    assert (after.shares == np.floor(after.shares)).all()
    lost = accounts.value(prices) - after.value(prices)
    np.testing.assert_allclose(lost, filled.costs, atol=1e-9)
    np.testing.assert_allclose(filled.costs, 0.002 * filled.traded)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"cost": -0.001}, "cost: expected a share of at least 0 and below 1, got -0.001"),
        ({"cost": 1.0}, "cost: expected"),
        ({"initial_cash": 0.0}, "initial_cash: expected more than 0"),
        ({"h_max": 0}, "h_max: expected at least 1"),
        ({"least_order": 100}, "least_order: expected 0 to 99"),
    ],
)
def test_rules_out_of_their_bounds_are_refused(rules: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Rules(**rules)
