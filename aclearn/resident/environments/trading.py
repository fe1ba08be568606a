"""Trading as Warp functions: `aclearn.envs.trading`, of which each market makes an environment."""

from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces

from aclearn.envs.trading import trading_batch
from aclearn.envs.trading.batch import MOST_SHARES, SPREAD
from aclearn.errors import EnvironmentFailure
from aclearn.resident.environment import ResidentEnv, SharedColumns
from aclearn.resident.warp_setup import wp


def trading_env(**arguments: Any) -> ResidentEnv:
    """The resident environment of a market and its rules.

    Args:
        arguments: of `aclearn.envs.trading.TradingEnv`, without `finrl_faults`.

    Raises:
        MarketError, ArgumentError: prices, periods or settings that cannot be used.
    """
    batch = trading_batch(num_envs=1, **arguments)
    if batch.finrl_faults:
        raise EnvironmentFailure("resident environment Trading: finrl_faults is not there")
    n, D = len(batch.prepared.market.names), batch.observation_size
    functions = _functions(n, D)

    def make_params(device: Any, **_arguments: Any) -> Any:
        # the arguments have made the environment already
        made, market, rules = functions["params"](), batch.prepared, batch.rules
        made.prices = wp.array(market.prices, dtype=wp.float64, device=device)
        made.fills = wp.array(market.fills, dtype=wp.float64, device=device)
        made.market = wp.array(batch.market_part, dtype=wp.float32, device=device)
        made.turbulent = wp.array(market.turbulent, dtype=wp.bool, device=device)
        made.first_bars, made.random_accounts = batch.first_bars, batch.random_accounts
        made.initial_cash, made.cost = float(rules.initial_cash), float(rules.cost)
        made.h_max, made.least_order = float(rules.h_max), float(rules.least_order)
        return made

    return ResidentEnv(
        "Trading",
        **functions,
        observation_space=spaces.Box(-np.inf, np.inf, (D,), np.float32),
        action_space=spaces.Box(-1.0, 1.0, (n,), np.float32),
        time_limit=batch.steps,
        length_key="window",
        make_params=make_params,
        shared=SharedColumns("bar", lambda params: params.market),
    )


@lru_cache
def _functions(n: int, D: int) -> dict[str, Any]:
    """The structs and functions for n stocks and D observed numbers.

    One set for all markets of this size: Warp tells the structs of two sets apart.
    """
    orders_type = wp.types.vector(length=n, dtype=wp.float32)
    shares_type = wp.types.vector(length=n, dtype=wp.float64)
    seen_type = wp.types.vector(length=D, dtype=wp.float32)

    @wp.struct
    class State:
        """The bar of the period, the cash, and the shares."""

        bar: wp.int32
        cash: wp.float64
        shares: shares_type

    @wp.struct
    class Params:
        """Prices `[T, n]`, the market's part of observations `[T, ·]`, and the rules."""

        prices: wp.array2d(dtype=wp.float64)
        fills: wp.array2d(dtype=wp.float64)
        market: wp.array2d(dtype=wp.float32)
        turbulent: wp.array(dtype=wp.bool)
        first_bars: wp.int32
        random_accounts: wp.bool
        initial_cash: wp.float64
        h_max: wp.float64
        least_order: wp.float64
        cost: wp.float64

    @wp.func
    def reset(rng: wp.uint32, p: Params) -> State:
        s = State()
        s.bar = wp.randi(rng, 0, p.first_bars)
        s.cash = p.initial_cash
        if p.random_accounts:
            worth = wp.float64(wp.randf(rng, wp.static(1.0 - SPREAD), wp.static(1.0 + SPREAD)))
            s.cash = s.cash * worth
            for i in range(wp.static(n)):
                s.shares[i] = wp.float64(wp.randi(rng, 0, wp.static(MOST_SHARES + 1)))
                s.cash = s.cash - s.shares[i] * p.prices[s.bar, i]
        return s

    @wp.func
    def value(s: State, p: Params) -> wp.float64:
        total = s.cash
        for i in range(wp.static(n)):
            total += s.shares[i] * p.prices[s.bar, i]
        return total

    @wp.func
    def step(s: State, action: orders_type, rng: wp.uint32, p: Params):
        before = value(s, p)
        at = s.bar + 1
        proceeds = wp.float64(0.0)
        price_of_all = wp.float64(0.0)
        wanted = shares_type()
        for i in range(wp.static(n)):
            order = wp.trunc(wp.float64(action[i]) * p.h_max)
            if wp.abs(order) <= p.least_order:
                order = wp.float64(0.0)
            if p.turbulent[s.bar]:
                order = -s.shares[i]
            sold = wp.min(wp.max(-order, wp.float64(0.0)), s.shares[i])
            wanted[i] = wp.max(order, wp.float64(0.0))
            proceeds += sold * p.fills[at, i]
            price_of_all += wanted[i] * p.fills[at, i]
            s.shares[i] = s.shares[i] - sold
        cash = s.cash + proceeds * (wp.float64(1.0) - p.cost)
        price_of_all = price_of_all * (wp.float64(1.0) + p.cost)
        share = wp.float64(1.0)
        if price_of_all > cash:
            share = cash / price_of_all
        spent = wp.float64(0.0)
        for i in range(wp.static(n)):
            bought = wp.floor(wanted[i] * share)
            spent += bought * p.fills[at, i]
            s.shares[i] = s.shares[i] + bought
        s.cash = wp.max(cash - spent * (wp.float64(1.0) + p.cost), wp.float64(0.0))
        s.bar = at
        return s, wp.float32((value(s, p) - before) / p.initial_cash), False

    @wp.func
    def observe(s: State, p: Params) -> seen_type:
        seen = seen_type()
        seen[0] = wp.float32(s.cash / p.initial_cash)
        for i in range(wp.static(n)):
            seen[1 + i] = wp.float32(s.shares[i] * p.prices[s.bar, i] / p.initial_cash)
        for j in range(wp.static(D - 1 - n)):
            seen[wp.static(1 + n) + j] = p.market[s.bar, j]
        return seen

    return {"state": State, "params": Params, "reset": reset, "step": step, "observe": observe}
