"""A bandit that learns which rung makes the return grow fastest (AcceRL, equation 6)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from aclearn.config import Whole
from aclearn.config.monitor import StrategyArguments
from aclearn.control.strategies.strategy import Decision, Moment, Strategy
from aclearn.metrics.names import COMPRESSED


class BanditConfig(StrategyArguments):
    """A sliding-window UCB bandit whose arms are the rungs, and its reward growth per second."""

    indicator: str = Field(
        default="return_mean_100",
        min_length=1,
        description="cumulative reward CR, a figure of the metrics line",
    )
    every_s: float = Field(
        default=60.0,
        gt=0.0,
        le=86_400.0,
        description="time Δ that a play of a rung is measured, in seconds, from its first artifact "
        "on",
    )
    window: Whole = Field(
        default=40, ge=2, le=1000, description="newest plays that count; older ones are forgotten"
    )
    exploration: float = Field(
        default=0.6, ge=0.0, le=100.0, description="ξ: how much an uncertain rung is preferred"
    )


class Bandit(Strategy):
    """Plays each rung for a while, and then those with the highest growth: sliding-window UCB.

    Equation 6 of AcceRL is the maximum over p of (CR_{t+Δ} − CR_t) / Δ. Here p is a rung, CR the
    indicator and Δ `every_s`, without the pause in which actors change to the rung: a play begins
    with the rung's first artifact, or after Δ if none has come by then. A rung's growth
    changes while the policy learns, so only the newest `window` plays count (Garivier and Moulines,
    2011). The next rung has the highest mean + B √(ξ ln n / N): of its N plays among the n that
    count; B is the spread of all of them. A rung without plays comes first, and of equals the most
    compressed one.
    """

    config_model = BanditConfig

    def __init__(self, **arguments: Any) -> None:
        config = BanditConfig(**arguments)
        self.indicators = (config.indicator,)
        self._indicator, self._every_s = config.indicator, config.every_s
        self._exploration = config.exploration
        #: Rung and growth per second of each play that counts, the oldest first.
        self._plays: deque[tuple[int, float]] = deque(maxlen=config.window)
        #: Rung, time and return at the start of the present play, or of the wait for it.
        self._began: tuple[int, float, float] | None = None
        self._acts = False  # whether the rung's policy acts, or was awaited for long

    def decide(self, moment: Moment) -> Decision | None:
        """The next rung, at the end of a play."""
        value = moment.number(self._indicator)
        if value is None:
            return None
        if self._began is None or self._began[0] != moment.rung:
            self._began, self._acts = (moment.rung, moment.time_s, value), False
        rung, time_s, before = self._began
        long = (lasted_s := moment.time_s - time_s) >= self._every_s
        if not self._acts:
            if long or moment.number(COMPRESSED) != 0.0:
                self._began, self._acts = (rung, moment.time_s, value), True
            return None
        if not long:
            return None
        growth = (value - before) / lasted_s
        self._plays.append((rung, growth))
        bounds = self._bounds(moment.rungs)
        chosen = max(range(moment.rungs), key=lambda rung: bounds.get(rung, math.inf))
        self._began = (chosen, moment.time_s, value) if chosen == rung else None
        cause = {"growth_per_s": growth}
        return Decision(chosen, cause | {f"bound_{each}": bounds[each] for each in sorted(bounds)})

    def state(self) -> dict[str, Any]:
        """The plays that count."""
        return {"plays": [list(play) for play in self._plays]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`; the present play starts again."""
        self._plays.extend((int(rung), float(growth)) for rung, growth in state["plays"])

    def gauges(self) -> dict[str, float]:
        """The mean growth of each rung."""
        return {f"growth_{rung}": mean for rung, (mean, _) in self._means().items()}

    def _means(self) -> dict[int, tuple[float, int]]:
        """Rung → mean growth and number of its plays."""
        growths: dict[int, list[float]] = {}
        for rung, growth in self._plays:
            growths.setdefault(rung, []).append(growth)
        return {rung: (math.fsum(x) / len(x), len(x)) for rung, x in growths.items()}

    def _bounds(self, rungs: int) -> dict[int, float]:
        """Upper confidence bound of each rung that was played."""
        growths = [growth for _, growth in self._plays]
        spread = max(growths) - min(growths)
        known = self._exploration * math.log(len(growths))
        return {
            rung: mean + spread * math.sqrt(known / plays)
            for rung, (mean, plays) in self._means().items()
            if rung < rungs
        }
