"""Plays a run's policy over a period of its market, bar by bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from aclearn.envs.trading import Market, load_market
from aclearn.envs.trading.performance import Track
from aclearn.envs.trading.periods import bars_of_period
from aclearn.errors import ArgumentError
from services.evaluator.play import make_envs, players_of, steps_of
from services.evaluator.saved_policy import SavedRun

#: Of the environment's arguments.
_TEST, _NEEDED = "test", ("market", "periods")
#: Ids of one market.
_RESIDENT, _GROUP = "resident:Trading", "vector:aclearn.envs.trading:TradingVectorEnv"


@dataclass(frozen=True, eq=False)
class Tested:
    """A policy that is played on a period.

    Attributes:
        arguments: of the environment in that period.
        bars: of the market, the first one and the one after the last.
    """

    saved: SavedRun
    market: Market
    arguments: Mapping[str, Any]
    bars: tuple[int, int]

    @classmethod
    def of(cls, saved: SavedRun, run: Path, period: Sequence[str] | None) -> Tested:
        """A policy and the period, by default its own `test`.

        Args:
            run: its folder, for messages.

        Raises:
            AclearnError: it is of no run on a market, or the period overlaps what it was trained or
                chosen on.
        """
        arguments = saved.config.env.kwargs
        if any(key not in arguments for key in _NEEDED):
            raise ArgumentError(
                f"{run}: its environment {saved.config.env.id} has no market and periods in "
                "env.kwargs; aclearn backtest plays runs on aclearn.envs.trading"
            )
        periods = dict(arguments["periods"])
        if period is not None:
            periods[_TEST] = list(period)
        elif _TEST not in periods:
            raise ArgumentError(
                f"{run}: its periods have no test; name the days with --from and --to"
            )
        market = load_market(arguments["market"])
        changed = {
            **arguments,
            "periods": periods,
            "period": _TEST,
            "window": None,
            "random_accounts": False,
        }
        return cls(saved, market, changed, bars_of_period(market, periods, _TEST))

    def track(self, cost: float, *, greedy: bool, seed: int) -> Track:
        """The account of the policy, which begins with cash alone.

        Args:
            cost: of each trade, as a share of its value.
            greedy: take the most probable actions.
            seed: of sampling.

        Raises:
            EnvironmentFailure: the environment cannot be made, or has other spaces than the run's.
        """
        saved, kwargs = self.saved, {**self.arguments, "cost": cost}
        changed: dict[str, Any] = {"kwargs": kwargs}
        if saved.config.env.id == _RESIDENT:  # it tells no costs
            changed["id"] = _GROUP
        env_config = saved.config.env.model_copy(update=changed)
        config = saved.config.model_copy(update={"env": env_config})
        [(name, env)] = make_envs(replace(saved, config=config), 1, seed).items()
        rewards: list[float] = []
        info: Mapping[str, Any] = {}
        try:
            for steps in steps_of(players_of(saved, greedy=greedy), {name: env}, seed):
                _, step = steps[name]
                rewards.append(float(step.rewards[0]))
                if step.terminated[0] or step.truncated[0]:
                    info = step.infos[0]
                    break
        finally:
            env.close()
        begin, end = self.bars
        # rewards are changes of the value over its beginning; with finrl_faults the last is not
        values = np.cumsum([1.0, *rewards])
        values[-1] = 1.0 + float(info["total_return"])
        return Track(
            self.market.times[begin:end], values, float(info["costs"]), float(info["turnover"])
        )
