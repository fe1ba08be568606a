"""One rung for each stage of learning: exploration, improvement, convergence (figure 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field
from typing_extensions import override

from aclearn.config import Whole
from aclearn.config.monitor import StrategyArguments
from aclearn.control.strategies.strategy import Decision, HeldFor, Moment, Strategy

_EXPLORATION, _IMPROVEMENT, _CONVERGENCE = "exploration", "improvement", "convergence"


class StagedConfig(StrategyArguments):
    """Exploration, improvement and convergence, distinguished by the slope, each with its rung."""

    indicator: str = Field(
        default="return_slope_per_s",
        min_length=1,
        description="slope of the return, a figure of the metrics line",
    )
    slope: float = Field(
        default=0.01,
        gt=0.0,
        description="slope above which the policy improves, in points of the game per second",
    )
    back_share: float = Field(
        default=0.5, gt=0.0, le=1.0, description="share of it below which the slope counts as low"
    )
    calm_s: float = Field(
        default=120.0,
        gt=0.0,
        le=86_400.0,
        description="how long the slope must be low before improvement ends, in seconds",
    )
    exploration: Whole = Field(default=0, ge=0, description="rung before the first improvement")
    improvement: Whole = Field(default=1, ge=0, description="rung while the policy improves")
    convergence: Whole = Field(default=0, ge=0, description="rung after an improvement")


class Staged(Strategy):
    """Distinguishes the stages by the slope of the return, and sets the stage's rung.

    A run begins in exploration. A slope above `slope` is improvement, at any time. A slope below
    `back_share` · `slope` for `calm_s` ends it: that is convergence.
    """

    config_model = StagedConfig

    stages: ClassVar[tuple[str, ...]] = (_EXPLORATION, _IMPROVEMENT, _CONVERGENCE)

    def __init__(self, **arguments: Any) -> None:
        config = StagedConfig(**arguments)
        self.indicators = (config.indicator,)
        self._indicator, self._slope, self._calm_s = config.indicator, config.slope, config.calm_s
        self._low = config.back_share * config.slope
        self._rungs: dict[str, int] = {stage: getattr(config, stage) for stage in self.stages}
        self._stage, self._low_for = _EXPLORATION, HeldFor()

    def faults(self, rungs: int) -> list[str]:
        """Stages whose rung is not on the ladder."""
        return [
            f"{stage}: expected a rung from 0 to {rungs - 1}, got {rung}"
            for stage, rung in self._rungs.items()
            if rung >= rungs
        ]

    def decide(self, moment: Moment) -> Decision | None:
        """The rung of a new stage."""
        slope = moment.number(self._indicator)
        low_s = self._low_for.seconds(slope is not None and slope < self._low, moment)
        if slope is None:
            return None
        cause: dict[str, Any] = {self._indicator: slope}
        if slope > self._slope:
            stage = _IMPROVEMENT
        elif self._stage == _IMPROVEMENT and low_s is not None and low_s >= self._calm_s:
            stage, cause = _CONVERGENCE, cause | {"low_for_s": low_s}
        else:
            stage = self._stage
        if stage == self._stage and moment.rung == self._rungs[stage]:
            return None
        self._stage = stage
        return Decision(self._rungs[stage], {"stage": stage} | cause)

    def state(self) -> dict[str, Any]:
        """The stage."""
        return {"stage": self._stage}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        if state["stage"] not in self._rungs:
            raise ValueError(f"no such stage: {state['stage']!r}")
        self._stage = state["stage"]

    def gauges(self) -> dict[str, float]:
        """The number of the stage: 0, 1 or 2."""
        return {"stage": float(self.stages.index(self._stage))}
