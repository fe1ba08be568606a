"""One rung for each stage of learning: exploration, improvement, convergence (figure 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import override

from aclearn.control.strategies.strategy import Decision, HeldFor, Moment, Strategy

_EXPLORATION, _IMPROVEMENT, _CONVERGENCE = "exploration", "improvement", "convergence"


class Staged(Strategy):
    """Distinguishes the stages by the slope of the return, and sets the stage's rung.

    A run begins in exploration. A slope above `slope` is improvement, at any time. A slope below
    `back_share` · `slope` for `calm_s` ends it: that is convergence.

    Args:
        indicator: metric of the slope of the return.
        slope: least slope of improvement.
        back_share: share of it below which the slope counts as low.
        calm_s: how long it must be low, in seconds.
        exploration, improvement, convergence: the rungs.
    """

    stages: ClassVar[tuple[str, ...]] = (_EXPLORATION, _IMPROVEMENT, _CONVERGENCE)

    def __init__(
        self,
        indicator: str = "return_slope_per_s",
        slope: float = 0.01,
        *,
        back_share: float = 0.5,
        calm_s: float = 120.0,
        exploration: int = 0,
        improvement: int = 1,
        convergence: int = 0,
    ) -> None:
        self._indicator, self._slope, self._calm_s = indicator, slope, calm_s
        self._low = back_share * slope
        rungs = (exploration, improvement, convergence)
        self._rungs = dict(zip(self.stages, rungs, strict=True))
        self._stage, self._low_for = _EXPLORATION, HeldFor()

    @property
    def indicators(self) -> tuple[str, ...]:
        """The slope."""
        return (self._indicator,)

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
