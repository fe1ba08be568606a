"""The end of a run, and the time of its target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aclearn.config import RunConfig
from aclearn.metrics import EPISODES_FOR_TARGET


class StopCondition:
    """Compares metrics lines with `run.target_return` and the run's bounds. Pure.

    Args:
        run: the bounds; None means unbounded.
        reached_target_at_s: when an earlier part of this run met the target.
    """

    def __init__(self, run: RunConfig, *, reached_target_at_s: float | None = None) -> None:
        self._run = run
        self.reached_target_at_s = reached_target_at_s

    @classmethod
    def resumed(cls, run: RunConfig, last: Mapping[str, Any]) -> StopCondition:
        """The condition of a run that continues after its last metrics line, {} for a new one.

        A target that an earlier part reached counts while the target stays the same.
        """
        same = last.get("target_return", run.target_return) == run.target_return
        reached = last.get("reached_target_at_s") if same else None
        return cls(run, reached_target_at_s=reached)

    def fields(self) -> dict[str, float | None]:
        """The fields of a metrics line: the target, and the time when it was met."""
        return {
            "target_return": self._run.target_return,
            "reached_target_at_s": self.reached_target_at_s,
        }

    def observe(self, line: Mapping[str, Any]) -> str | None:
        """The first reason in `reached`, None while the run continues."""
        return next(iter(self.reached(line)), None)

    def reached(self, line: Mapping[str, Any]) -> dict[str, float]:
        """All reasons to end the run by this metrics line: "target_reached" and names of bounds.

        The values are the seconds at which the target was met, or the bounded counts. A mean of
        fewer than 100 episodes meets no target.
        """
        run = self._run
        mean = line["return_mean_100"]
        if run.target_return is not None and self.reached_target_at_s is None:
            enough = line["episodes_in_mean"] >= EPISODES_FOR_TARGET
            if mean is not None and enough and mean >= run.target_return:
                self.reached_target_at_s = float(line["time_s"])
        reasons: dict[str, float] = {}
        if self.reached_target_at_s is not None and run.stop_at_target:
            reasons["target_reached"] = self.reached_target_at_s
        bounds: list[tuple[str, str, float | None]] = [
            # the trainer's account, since a false claim of an actor must not end the run
            ("max_env_steps", "accounted_env_steps", run.max_env_steps),
            ("max_updates", "updates", run.max_updates),
            ("max_wall_s", "time_s", run.max_wall_s),
        ]
        for reason, name, bound in bounds:
            if bound is not None and line[name] >= bound:
                reasons[reason] = line[name]
        return reasons
