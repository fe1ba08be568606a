"""Trading as a gymnasium environment, and as a vector environment without a process for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from typing_extensions import override

from aclearn.envs.trading.batch import TradingBatch
from aclearn.envs.trading.market import Market
from aclearn.envs.trading.mdp import Rules
from aclearn.envs.trading.periods import bars_of_period
from aclearn.envs.trading.prepared import prepare
from aclearn.envs.trading.sources import load_market
from aclearn.errors import ArgumentError

_Info = dict[str, Any]


def trading_batch(
    market: Market | str | Mapping[str, Any],
    *,
    periods: Mapping[str, Sequence[str]],
    num_envs: int,
    period: str = "train",
    indicators: Sequence[str] = (),
    columns: Sequence[str] = (),
    turbulence_threshold: float | None = None,
    fill_at: str = "close",
    window: int | None = None,
    random_accounts: bool = False,
    finrl_faults: bool = False,
    initial_cash: float = 1_000_000.0,
    h_max: int = 100,
    least_order: int = 0,
    cost: float = 0.001,
) -> TradingBatch:
    """Episodes of trading in one period of a market, not begun yet.

    Args:
        market: see `load_market`.
        periods: first and last date of "train", "validation" and "test", where there are any.
        period: the one to play in.
        indicators: names of `indicators`.
        columns: names of columns of the market's own, shown as they are.
        turbulence_threshold: all shares are sold after a bar whose turbulence is above it, and
            nothing is bought; None: turbulence is not computed.
        fill_at: price of the next bar at which orders are filled, "close" or "open".

    Other arguments are those of `Rules` and `TradingBatch`.

    Raises:
        MarketError, ArgumentError: prices, periods or settings that cannot be used.
    """
    rules = Rules(initial_cash, h_max, least_order, cost)
    loaded = market if isinstance(market, Market) else load_market(market)
    prepared = prepare(
        loaded,
        bars_of_period(loaded, periods, period),
        indicators=indicators,
        columns=columns,
        turbulence_threshold=turbulence_threshold,
        fill_at=fill_at,
    )
    return TradingBatch(
        prepared,
        rules,
        num_envs=num_envs,
        window=window,
        random_accounts=random_accounts,
        finrl_faults=finrl_faults,
    )


class TradingEnv(gymnasium.Env):  # type: ignore[misc]  # gymnasium is untyped
    """One account that trades n stocks.

    Actions are n numbers in [-1, 1], as shares of `h_max`. Observations are D numbers, see
    `TradingBatch.observations`. An episode ends at the last bar of its window: it is truncated,
    since the market goes on; with `finrl_faults` it is terminated. Then `info` has the figures of
    `TradingBatch.figures`.

    Args:
        market, arguments: of `trading_batch`.
    """

    def __init__(self, market: Market | str | Mapping[str, Any], **arguments: Any) -> None:
        self.batch = trading_batch(market, num_envs=1, **arguments)
        self._terminates = bool(arguments.get("finrl_faults"))
        self.observation_space, self.action_space = _spaces(self.batch)
        self._all = np.ones(1, np.bool_)
        self._seeded = False

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], _Info]:
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            chosen = int(self.np_random.integers(2**31)) if seed is None else seed
            self.batch.seed(np.array([chosen], np.uint64))
            self._seeded = True
        self.batch.begin(self._all)
        return self.batch.observations()[0], {}

    @override
    def step(
        self, action: NDArray[np.floating]
    ) -> tuple[NDArray[np.float32], float, bool, bool, _Info]:
        step = self.batch.step(np.asarray(action)[None], self._all)
        ended = bool(step.ended[0])
        info = {name: float(f[0]) for name, f in self.batch.figures().items()} if ended else {}
        over = ended and self._terminates
        seen = self.batch.observations()[0]
        return seen, float(step.rewards[0]), over, ended and not over, info


class TradingVectorEnv(gymnasium.vector.VectorEnv):  # type: ignore[misc]  # gymnasium is untyped
    """B accounts that trade in one object; environment b is `TradingEnv` with the seed seed + b.

    Autoreset is that of the next step. `TradingEnv` has actions, observations and ends.

    Args:
        market, arguments: of `trading_batch`.
    """

    def __init__(
        self, market: Market | str | Mapping[str, Any], *, num_envs: int, **arguments: Any
    ) -> None:
        self.num_envs = num_envs
        self.batch = trading_batch(market, num_envs=num_envs, **arguments)
        self._terminates = bool(arguments.get("finrl_faults"))
        self.single_observation_space, self.single_action_space = _spaces(self.batch)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._ended = np.zeros(num_envs, np.bool_)
        self._seeded = False

    @override
    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.float32], _Info]:
        """First observations [B, D] of new episodes everywhere."""
        if options:
            raise ArgumentError(f"options: this environment takes none, got {options}")
        if seed is not None or not self._seeded:
            chosen = int(self.np_random.integers(2**31)) if seed is None else seed
            seeds, B = np.asarray(chosen), self.num_envs
            if seeds.ndim == 0:
                seeds = seeds + np.arange(B)
            if seeds.shape != (B,):
                raise ArgumentError(f"seed: expected a number or {B} of them, got {seed}")
            self.batch.seed(seeds.astype(np.uint64))
            self._seeded = True
        self._ended = np.zeros(self.num_envs, np.bool_)
        self.batch.begin(~self._ended)
        return self.batch.observations(), {}

    @override
    def step(
        self, actions: NDArray[np.floating]
    ) -> tuple[
        NDArray[np.float32], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], _Info
    ]:
        """Observations [B, D], rewards, terminated, truncated [B]; figures of ended episodes."""
        idle = self._ended
        step = self.batch.step(actions, ~idle)
        info: _Info = {}
        if step.ended.any():
            for name, figures in self.batch.figures().items():
                info |= {name: np.where(step.ended, figures, 0.0), f"_{name}": step.ended}
        if idle.any():
            self.batch.begin(idle)
        self._ended, none = step.ended, np.zeros_like(step.ended)
        over, cut = (step.ended, none) if self._terminates else (none, step.ended.copy())
        return self.batch.observations(), step.rewards, over.copy(), cut, info


def _spaces(batch: TradingBatch) -> tuple[spaces.Box, spaces.Box]:
    seen = spaces.Box(-np.inf, np.inf, (batch.observation_size,), np.float32)
    return seen, spaces.Box(-1.0, 1.0, (len(batch.prepared.market.names),), np.float32)
