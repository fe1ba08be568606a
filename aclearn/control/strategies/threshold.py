"""An indicator beyond a bound moves to a more faithful chain (AcceRL, figure 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field
from typing_extensions import override

from aclearn.config.monitor import StrategyArguments
from aclearn.control.strategies.strategy import Decision, HeldFor, Moment, Strategy

#: Factor of the wait before a return, if the rung fails again.
_WAIT_GROWS_BY = 2.0


class ReturnsConfig(StrategyArguments):
    """Arguments of a strategy that comes back from a more faithful rung."""

    back_share: float = Field(
        default=0.5,
        gt=0.0,
        le=1.0,
        description="share of the bound below which the indicator counts as low again",
    )
    back_after_s: float = Field(
        default=30.0,
        gt=0.0,
        le=86_400.0,
        description="how long the indicator must be low before a less faithful rung is tried "
        "again, in seconds; doubles each time that rung fails again",
    )
    back_after_most_s: float = Field(
        default=600.0,
        gt=0.0,
        le=86_400.0,
        description="bound of that wait, in seconds",
    )


class ThresholdConfig(ReturnsConfig):
    """An indicator beyond a bound: the next more faithful rung of the ladder."""

    indicator: str = Field(
        default="compressor_kl_max",
        min_length=1,
        description="bounded quantity, a figure of the metrics line",
    )
    epsilon: float = Field(
        default=14.0, gt=0.0, description="bound ε of the indicator; of a divergence, in nats"
    )


class Threshold(Strategy):
    """Moves to the next more faithful rung while the indicator is above `epsilon`, and returns.

    The indicator of the faithful rung tells nothing about the rung below, so a return is a trial.
    It follows when the indicator was below `back_share` · `epsilon` for `back_after_s`. This wait
    doubles each time a rung fails again, up to `back_after_most_s`; it is reset when the rung has
    held for as long.
    """

    config_model: ClassVar[type[StrategyArguments]] = ThresholdConfig

    def __init__(self, **arguments: Any) -> None:
        config = ThresholdConfig(**arguments)
        self.indicators = (config.indicator,)
        self._indicator, self._epsilon = config.indicator, config.epsilon
        self._low = config.back_share * config.epsilon
        self._back_after_s = config.back_after_s
        self._back_after_most_s = max(config.back_after_s, config.back_after_most_s)
        #: How long the indicator must be low; and the rung that failed last: rungs up to it are on
        #: trial.
        self._wait_s, self._failed = self._back_after_s, -1
        self._low_for = HeldFor()

    def value(self, moment: Moment) -> float | None:
        """The indicator; None where it is not known."""
        return moment.number(self._indicator)

    def decide(self, moment: Moment) -> Decision | None:
        """One rung up at once, one down after the wait."""
        value, rung = self.value(moment), moment.rung
        low_s = self._low_for.seconds(value is not None and value < self._low, moment)
        if value is not None and value > self._epsilon and rung < moment.top:
            self._fail(rung)
            return Decision(rung + 1, {self._indicator: value, "epsilon": self._epsilon})
        if low_s is None or low_s < self._wait_s:
            return None
        if rung <= self._failed:
            self._wait_s, self._failed = self._back_after_s, -1  # the trial was passed
        if rung == 0:
            return None
        return Decision(rung - 1, {self._indicator: value, "below": self._low, "for_s": low_s})

    def state(self) -> dict[str, float]:
        """The wait, and the failed rung."""
        return {"wait_s": self._wait_s, "failed": self._failed}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        wait_s, failed = float(state["wait_s"]), int(state["failed"])
        self._wait_s = min(max(wait_s, self._back_after_s), self._back_after_most_s)
        self._failed = failed

    def gauges(self) -> dict[str, float]:
        """The wait."""
        return {"wait_s": self._wait_s}

    def _fail(self, rung: int) -> None:
        again = rung <= self._failed
        longer = min(_WAIT_GROWS_BY * self._wait_s, self._back_after_most_s)
        self._wait_s = longer if again else self._back_after_s
        self._failed = rung
