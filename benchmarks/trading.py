"""Steps per second of the trading environment: batched, resident, one by one, and FinRL's own.

    python benchmarks/trading.py [--seconds 2] [--envs 64 1024 16384] [--finrl FILE]

20 stocks from 2009 to 2018 with six indicators, random actions. Prints one JSON line a figure:
`steps_per_s` by the clock, and `steps_per_cpu_s` by the CPU seconds of all threads, which bears
other programs on the machine. FILE is `finrl/meta/env_stock_trading/env_stocktrading_np.py` of the
wheel FinRL 0.3.7; it gets the same prices and as many indicators.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from aclearn.envs.trading import TradingEnv, TradingVectorEnv, load_market, trading_batch
from aclearn.resident import make

SETTINGS: dict[str, Any] = {
    "market": "sp500_20",
    "periods": {"train": ["2009-01-02", "2018-12-31"]},
    "indicators": ["macd", "rsi_30", "boll_ub", "boll_lb", "close_30_sma", "close_60_sma"],
    "window": 252,
}
#: Steps between two looks at the clock.
_AT_ONCE = 50


def _rate(what: str, envs: int, step: Callable[[], object], seconds: float) -> dict[str, Any]:
    step()  # compiles, and takes memory
    steps, began, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        for _ in range(_AT_ONCE):
            step()
        steps += _AT_ONCE * envs
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return {
        "what": what,
        "envs": envs,
        "steps_per_s": round(steps / wall_s),
        "steps_per_cpu_s": round(steps / cpu_s),
    }


def _actions(envs: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(0).uniform(-1.0, 1.0, (envs, 20)).astype(np.float32)


def batched(envs: int, seconds: float) -> dict[str, Any]:
    """All accounts in one object."""
    env, actions = TradingVectorEnv(num_envs=envs, **SETTINGS), _actions(envs)
    env.reset(seed=0)
    return _rate("batched", envs, lambda: env.step(actions), seconds)


def resident(envs: int, seconds: float) -> dict[str, Any]:
    """The same market compiled, on all cores."""
    env, actions = make("Trading", envs=envs, device="cpu", **SETTINGS), _actions(envs)
    env.reset()
    given = torch.from_numpy(actions)
    row = _rate("resident", envs, lambda: env.step(given), seconds)
    env.close()
    return row


def one_by_one(envs: int, seconds: float) -> dict[str, Any]:
    """Gymnasium's vector environment of single ones."""
    env = gymnasium.vector.SyncVectorEnv([lambda: TradingEnv(**SETTINGS)] * envs)
    env.reset(seed=0)
    actions = _actions(envs)
    return _rate("gymnasium.vector.SyncVectorEnv", envs, lambda: env.step(actions), seconds)


def finrl(path: Path, seconds: float) -> dict[str, Any]:
    """FinRL's environment; it is reset at its end."""
    theirs: dict[str, Any] = {}
    exec(path.read_text(), theirs)
    prices = trading_batch(num_envs=1, **SETTINGS).prepared.prices
    arrays = {
        "price_array": prices,
        "tech_array": np.tile(prices, (1, len(SETTINGS["indicators"]))),
        "turbulence_array": np.zeros(len(prices)),
        "if_train": True,
    }
    env = theirs["StockTradingEnv"](arrays)
    env.reset()
    (action,) = _actions(1)

    def step() -> None:
        if env.step(action)[2]:
            env.reset()

    return _rate("FinRL", 1, step, seconds)


def rows(envs: Sequence[int], seconds: float, finrl_file: Path | None) -> list[dict[str, Any]]:
    """All figures."""
    load_market("sp500_20")  # kept, so that nothing below reads the file
    found = [batched(count, seconds) for count in (1, *envs)]
    found += [resident(count, seconds) for count in envs]
    found.append(one_by_one(min(envs), seconds))
    return [*found, *([] if finrl_file is None else [finrl(finrl_file, seconds)])]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--envs", type=int, nargs="+", default=[64, 1024, 16384])
    parser.add_argument("--finrl", type=Path)
    given = parser.parse_args()
    for row in rows(given.envs, given.seconds, given.finrl):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
