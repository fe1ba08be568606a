"""B episodes of trading in one object, each with a bar and a window of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aclearn.envs.trading import finrl
from aclearn.envs.trading.draws import uniforms
from aclearn.envs.trading.market import Numbers
from aclearn.envs.trading.mdp import (
    Accounts,
    Rules,
    account_features,
    fill,
    orders_of,
    price_features,
)
from aclearn.envs.trading.prepared import PreparedMarket
from aclearn.errors import ArgumentError, MarketError

#: Of random accounts, as FinRL draws them: at most so many shares of a stock, and b_0 within 5 %.
MOST_SHARES, SPREAD = 63, 0.05


@dataclass(frozen=True, eq=False)
class BatchStep:
    """A step of B episodes.

    Attributes:
        rewards: [B], change of the account's value over b_0; their sum is a return.
        ended: [B] bool, the episode has reached the last bar of its window.
    """

    rewards: Numbers
    ended: NDArray[np.bool_]


class TradingBatch:
    """B accounts that trade in one period of a market; no step loops over them.

    Env b's episodes are a function of its seed and of how many it has begun: the batch gives what
    B single environments give.

    Args:
        window: steps of an episode, which begins at a random bar; None: the whole period.
        random_accounts: begin with 0 to 63 shares of each stock and, shares included, 95 to 105 %
            of the initial cash.
        finrl_faults: behave as `finrl` says.

    Attributes:
        accounts: after the last step.
        bars: [B] int64, the bar of the period at which each account is.
        steps: of an episode, which begins at one of the first `first_bars` bars.
        market_part: [T, n + F] float32, the part of observations that is the bar's alone.
        observation_size: D = 1 + 2n + F.

    Raises:
        ArgumentError: random accounts could cost more than there is.
        MarketError: a window that is longer than the period.
    """

    def __init__(
        self,
        prepared: PreparedMarket,
        rules: Rules,
        *,
        num_envs: int,
        window: int | None = None,
        random_accounts: bool = False,
        finrl_faults: bool = False,
    ) -> None:
        T, n = prepared.prices.shape
        self.steps = T - 1 if window is None else window
        if not 1 <= self.steps <= T - 1:
            raise MarketError(
                f"window: expected 1 to {T - 1} steps, since the period has {T} bars, got {window}"
            )
        self.first_bars = T - self.steps  # from which a window fits
        if random_accounts:
            most = MOST_SHARES * prepared.prices[: self.first_bars].sum(axis=1).max()
            if most > (1.0 - SPREAD) * rules.initial_cash:
                raise ArgumentError(
                    f"random_accounts: {MOST_SHARES} shares of each stock cost up to {most:,.0f}, "
                    f"and initial_cash is {rules.initial_cash:,.0f}; raise it"
                )
        self.prepared, self.rules, self.num_envs = prepared, rules, num_envs
        self.random_accounts, self.finrl_faults = random_accounts, finrl_faults
        self.market_part = np.concatenate(
            [price_features(prepared.prices, rules), prepared.features], axis=1
        ).astype(np.float32)
        self.observation_size = 1 + n + self.market_part.shape[1]
        B = num_envs
        self._seeds, self._episodes = np.zeros(B, np.uint64), np.zeros(B, np.uint64)
        self.bars, self._last_bars = np.zeros(B, np.int64), np.zeros(B, np.int64)
        self.accounts = Accounts(np.zeros(B), np.zeros((B, n)))
        self._values, self._first_values = np.zeros(B), np.zeros(B)
        self._costs, self._traded, self._discounted = np.zeros(B), np.zeros(B), np.zeros(B)

    def seed(self, seeds: NDArray[np.uint64]) -> None:
        """Set the seeds [B]; the next episode of each environment is its first."""
        self._seeds = seeds.astype(np.uint64)
        self._episodes = np.zeros(self.num_envs, np.uint64)

    def begin(self, rows: NDArray[np.bool_]) -> None:
        """Begin the next episode in these environments, [B] bool."""
        b = np.flatnonzero(rows)
        n = self.accounts.shares.shape[1]
        drawn = uniforms(self._seeds[b], self._episodes[b], 2 + n)
        self._episodes[b] += np.uint64(1)
        bars = (drawn[:, 0] * self.first_bars).astype(np.int64)
        shares, worth = np.zeros((len(b), n)), np.full(len(b), 1.0) * self.rules.initial_cash
        if self.random_accounts:
            shares = np.floor(drawn[:, 2:] * (MOST_SHARES + 1))
            worth *= 1.0 + SPREAD * (2.0 * drawn[:, 1] - 1.0)
        prices = self.prepared.prices[bars]
        self.accounts.cash[b] = worth - (shares * prices).sum(axis=1)
        self.accounts.shares[b] = shares
        self.bars[b], self._last_bars[b] = bars, bars + self.steps
        value = Accounts(self.accounts.cash[b], shares).value(prices)
        self._values[b] = self._first_values[b] = value
        self._costs[b] = self._traded[b] = self._discounted[b] = 0.0

    def step(self, actions: NDArray[np.floating], rows: NDArray[np.bool_]) -> BatchStep:
        """Order by actions [B, n] at the present bar, and fill the orders at the next one.

        Args:
            rows: [B] bool, environments that step; the others stay, with a reward of 0. Their
                episodes must not have ended.
        """
        market, rules = self.prepared, self.rules
        seen, self.bars = self.bars, self.bars + rows
        turbulent = market.turbulent[self.bars if self.finrl_faults else seen]
        # all shares, whatever h_max
        orders = np.where(turbulent[:, None], -self.accounts.shares, orders_of(actions, rules))
        orders *= rows[:, None]
        fill_orders = finrl.fill_as_finrl if self.finrl_faults else fill
        filled = fill_orders(self.accounts, orders, market.fills[self.bars], rules)
        self.accounts = filled.accounts
        self._costs += filled.costs
        self._traded += filled.traded
        values = self.accounts.value(market.prices[self.bars])
        rewards, self._values = (values - self._values) / rules.initial_cash, values
        ended = rows & (self.bars == self._last_bars)
        if self.finrl_faults:
            self._discounted = self._discounted * finrl.DISCOUNT + rewards
            rewards = np.where(ended, self._discounted, rewards)
        return BatchStep(rewards, ended)

    def observations(self) -> NDArray[np.float32]:
        """What a policy sees now, [B, D], a new array.

        The account's part comes first, then the market's, which is that of the bar alone.
        """
        prices, own = self.prepared.prices[self.bars], 1 + self.accounts.shares.shape[1]
        seen = np.empty((self.num_envs, self.observation_size), np.float32)
        seen[:, :own] = account_features(self.accounts, prices, self.rules)
        seen[:, own:] = self.market_part[self.bars]
        return seen

    @property
    def values(self) -> Numbers:
        """Value of each account now, [B]; the receiver's own."""
        return self._values.copy()

    def figures(self) -> dict[str, Numbers]:
        """Figures of the episodes so far, name → [B]; shares of the value or cash at the start.

        `total_return`; `costs` and `turnover` (all that was sold and bought) over the initial cash;
        `equal_weight_return` of equal amounts of all stocks, bought at the first bar and held,
        without costs.
        """
        prices = self.prepared.prices
        first = prices[self._last_bars - self.steps]
        return {
            "total_return": self._values / self._first_values - 1.0,
            "costs": self._costs / self.rules.initial_cash,
            "turnover": self._traded / self.rules.initial_cash,
            "equal_weight_return": (prices[self.bars] / first).mean(axis=1) - 1.0,
        }
