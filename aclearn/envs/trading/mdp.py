"""The decision process of FinRL-Podracer (Li et al. 2021, eqs 2 to 4) for B accounts at once.

At bar t a policy sees its account, and the market up to t, and orders shares. The orders are filled
at bar t + 1: sells first, then buys, both with costs. The reward is the change of the account's
value from t to t + 1, in which the costs are. Pure functions on float64 arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aclearn.envs.trading.market import Numbers
from aclearn.errors import ArgumentError


@dataclass(frozen=True)
class Rules:
    """How accounts trade.

    Attributes:
        initial_cash: b_0, in the currency of the prices.
        h_max: most shares of a stock that one order buys or sells.
        least_order: orders of at most so many shares are ignored; 0: none is.
        cost: of each trade, both sides, as a share of its value: 0.001 is 0.1 %.

    Raises:
        ArgumentError: a value out of its bounds.
    """

    initial_cash: float = 1_000_000.0
    h_max: int = 100
    least_order: int = 0
    cost: float = 0.001

    def __post_init__(self) -> None:
        if not 0.0 <= self.cost < 1.0:
            raise ArgumentError(
                f"cost: expected a share of at least 0 and below 1, got {self.cost}"
            )
        if not (self.initial_cash > 0.0 and np.isfinite(self.initial_cash)):
            raise ArgumentError(f"initial_cash: expected more than 0, got {self.initial_cash}")
        if self.h_max < 1:
            raise ArgumentError(f"h_max: expected at least 1 share, got {self.h_max}")
        if not 0 <= self.least_order < self.h_max:
            raise ArgumentError(
                f"least_order: expected 0 to {self.h_max - 1}, below h_max, got {self.least_order}"
            )


@dataclass(frozen=True, eq=False)
class Accounts:
    """B accounts.

    Attributes:
        cash: [B], never below 0.
        shares: [B, n], whole numbers, never below 0.
    """

    cash: Numbers
    shares: Numbers

    def value(self, prices: Numbers) -> Numbers:
        """Cash and shares at these prices [B, n], together [B]."""
        value: Numbers = self.cash + (self.shares * prices).sum(axis=1)
        return value


@dataclass(frozen=True, eq=False)
class Filled:
    """What the orders of a step did.

    Attributes:
        traded: [B], value of all shares that were sold and bought.
        costs: [B], paid for it.
    """

    accounts: Accounts
    traded: Numbers
    costs: Numbers


def orders_of(actions: NDArray[np.floating], rules: Rules) -> Numbers:
    """Actions in [-1, 1] [B, n] as ordered shares, whole numbers: below 0 to sell, above to buy."""
    orders = np.trunc(np.asarray(actions, np.float64) * rules.h_max)
    orders[np.abs(orders) <= rules.least_order] = 0.0
    return orders


def fill(accounts: Accounts, orders: Numbers, prices: Numbers, rules: Rules) -> Filled:
    """Fill orders [B, n] at prices [B, n].

    No more is sold than there is. Buys that cost more than the cash after the sells are filled in
    proportion, in whole shares, so that no stock comes first.
    """
    sold = np.minimum(np.maximum(-orders, 0.0), accounts.shares)
    proceeds = (sold * prices).sum(axis=1)
    cash = accounts.cash + proceeds * (1.0 - rules.cost)
    wanted = np.maximum(orders, 0.0)
    price_of_all = (wanted * prices).sum(axis=1) * (1.0 + rules.cost)
    # 1 where nothing is bought: 0/0
    share = np.where(price_of_all > cash, cash / np.maximum(price_of_all, 1e-300), 1.0)
    bought = np.floor(wanted * share[:, None])
    spent = (bought * prices).sum(axis=1)
    # rounding could leave the last bit of a float below 0
    cash = np.maximum(cash - spent * (1.0 + rules.cost), 0.0)
    traded = proceeds + spent
    return Filled(Accounts(cash, accounts.shares - sold + bought), traded, traded * rules.cost)


def account_features(accounts: Accounts, prices: Numbers, rules: Rules) -> Numbers:
    """A policy's view of its account, [B, 1 + n]: the cash, and each stock's value, in b_0."""
    values = accounts.shares * prices
    return np.concatenate([accounts.cash[:, None], values], axis=1) / rules.initial_cash


def price_features(prices: Numbers, rules: Rules) -> Numbers:
    """A policy's view of the prices, [T, n]: the value of an order of h_max shares, in b_0."""
    return prices * (rules.h_max / rules.initial_cash)
