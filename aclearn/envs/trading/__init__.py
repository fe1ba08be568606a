"""Trading stocks: the decision process of FinRL-Podracer on prices of any market.

`TradingEnv` is a gymnasium environment, `TradingVectorEnv` a vector environment for thousands of
episodes in one object. Indicators need the extra `aclearn[finance]`.
"""

from __future__ import annotations

from aclearn.envs.trading.batch import TradingBatch
from aclearn.envs.trading.env import TradingEnv, TradingVectorEnv, trading_batch
from aclearn.envs.trading.market import Market, MarketNotes
from aclearn.envs.trading.mdp import Rules
from aclearn.envs.trading.sources import load_market
from aclearn.envs.trading.synthetic import synthetic_market

__all__ = [
    "Market",
    "MarketNotes",
    "Rules",
    "TradingBatch",
    "TradingEnv",
    "TradingVectorEnv",
    "load_market",
    "synthetic_market",
    "trading_batch",
]
