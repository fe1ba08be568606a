"""Writes `finrl_golden.csv`: what FinRL's own numpy environment does on the shipped prices.

    python -m tests.support.finrl_golden PATH/env_stocktrading_np.py

The file is `finrl/meta/env_stock_trading/env_stocktrading_np.py` of the wheel FinRL 0.3.7. Three
episodes, by the names of `EPISODES`: 1000 steps from 2014-01-02 to 2017-12-20, turbulence 0 except
200 on bar 500, actions of a linear congruential generator. Its float32 is replaced by float64: the
rounding of a thousand steps is larger than what a test may overlook.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.envs.trading import Rules, TradingBatch, load_market
from aclearn.envs.trading.mdp import Accounts
from aclearn.envs.trading.prepared import PreparedMarket

FILE = Path(__file__).parents[1] / "aclearn/envs/trading/finrl_golden.csv"
STEPS, FIRST, TURBULENT = 1000, "2014-01-02", 500
#: Name → seed, arguments of FinRL's environment, and shares of each stock at the start.
EPISODES: dict[str, tuple[int, dict[str, Any], int]] = {
    "plain": (2024, {}, 0),
    "poor": (7, {"initial_capital": 20_000.0, "min_stock_rate": 0.0}, 0),  # cash below 0
    "dear": (11, {"buy_cost_pct": 0.002, "sell_cost_pct": 0.002, "max_stock": 250.0}, 40),
}


def actions(seed: int, stocks: int) -> Iterator[NDArray[np.float64]]:
    """Actions [stocks] without end."""
    state = seed
    while True:
        numbers = []
        for _ in range(stocks):
            state = (1664525 * state + 1013904223) % 2**32
            numbers.append((((state >> 16) % 2001) - 1000) / 1000)
        yield np.array(numbers)


def prices() -> NDArray[np.float64]:
    """Closes [STEPS + 1, 20]."""
    market = load_market("sp500_20")
    first = market.position(FIRST, key="")
    return market.close[first : first + STEPS + 1]


def batch_of(name: str, *, finrl_faults: bool) -> TradingBatch:
    """Our episode of this name, begun."""
    _, settings, held = EPISODES[name]
    market, close = load_market("sp500_20"), prices()
    first = market.position(FIRST, key="")
    turbulent = np.zeros(len(close), np.bool_)
    turbulent[TURBULENT] = True
    times = market.times[first : first + len(close)]
    none = np.empty((len(close), 0), np.float32)
    h_max = int(settings.get("max_stock", 100))
    rules = Rules(
        initial_cash=settings.get("initial_capital", 1e6),
        h_max=h_max,
        least_order=int(h_max * settings.get("min_stock_rate", 0.1)),
        cost=settings.get("buy_cost_pct", 0.001),
    )
    prepared = PreparedMarket(market, times, close, close, none, turbulent)
    batch = TradingBatch(prepared, rules, num_envs=1, finrl_faults=finrl_faults)
    batch.begin(np.ones(1, np.bool_))
    _give(batch, held)
    return batch


def _give(batch: TradingBatch, held: int) -> None:
    """Shares of each stock, beside the initial cash, which these do not cost."""
    batch.accounts = Accounts(batch.accounts.cash, np.full((1, 20), float(held)))
    batch._values = batch.accounts.value(batch.prepared.prices[:1])


def write(path: str) -> None:
    theirs: dict[str, Any] = {}
    exec(Path(path).read_text().replace("float32", "float64"), theirs)
    close = prices()
    turbulence = np.zeros(len(close))
    turbulence[TURBULENT] = 200.0
    with FILE.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["episode", "step", "cash", "value", "reward", "shares"])
        for name, (seed, settings, held) in EPISODES.items():
            env = theirs["StockTradingEnv"](
                {
                    "price_array": close,
                    "tech_array": close,
                    "turbulence_array": turbulence,
                    "if_train": False,
                },
                initial_stocks=np.full(close.shape[1], float(held)),
                **settings,
            )
            env.reset()
            for step, action in zip(range(STEPS), actions(seed, close.shape[1]), strict=False):
                _, reward, *_ = env.step(action)
                if step % 10 == 9 or step < 10 or abs(step - TURBULENT) < 3 or step == STEPS - 2:
                    shares = " ".join(str(int(number)) for number in env.stocks)
                    out.writerow([name, step, env.amount, env.total_asset, reward, shares])


if __name__ == "__main__":
    write(sys.argv[1])
