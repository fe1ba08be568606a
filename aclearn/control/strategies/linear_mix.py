"""The share of unrolls that the compressed policy plays falls with its distance (AcceRL)."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from aclearn.config.monitor import StrategyArguments
from aclearn.control.directives import SetChain, SetMix
from aclearn.control.strategies.strategy import Decision, Moment, Strategy


class LinearMixConfig(StrategyArguments):
    """The share α of unrolls that the compressed policy plays falls linearly with a distance."""

    indicator: str = Field(
        default="compressor_kl_mean",
        min_length=1,
        description="distance of the two policies, a figure of the metrics line",
    )
    zero_at: float = Field(
        default=1.0, gt=0.0, description="distance from which on α is 0; α is 1 at distance 0"
    )
    step: float = Field(default=0.05, gt=0.0, le=1.0, description="least change of α")


class LinearMix(Strategy):
    """The compressed policy plays an unroll with probability α = 1 − indicator / `zero_at`.

    α is at least 0. Changes of less than `step` are skipped, except those to 0 and to 1.
    """

    config_model = LinearMixConfig

    sets: ClassVar[type[SetChain] | type[SetMix]] = SetMix
    start: ClassVar[float] = 1.0

    def __init__(self, **arguments: Any) -> None:
        config = LinearMixConfig(**arguments)
        self.indicators = (config.indicator,)
        self._indicator, self._zero_at, self._step = config.indicator, config.zero_at, config.step

    def decide(self, moment: Moment) -> Decision | None:
        """α of the newest distance."""
        distance = moment.number(self._indicator)
        if distance is None:
            return None
        # rounded, so that it comes to 1 and no actor keeps a second policy for nothing
        share = round(min(max(1.0 - distance / self._zero_at, 0.0), 1.0), 3)
        change = abs(share - moment.setting)
        if change < self._step and not (change and share in (0.0, 1.0)):
            return None
        return Decision(share, {self._indicator: distance, "zero_at": self._zero_at})
