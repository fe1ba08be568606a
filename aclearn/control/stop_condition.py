"""When a run is over, and when it first reached its target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aclearn.config import RunConfig
from aclearn.metrics import EPISODES_FOR_TARGET


class StopCondition:
    """Judges metrics lines against `run.target_return` and the run's bounds. Pure.

    Args:
        run: the bounds; None means unbounded.
        reached_target_at_s: when the target was met by an earlier part of this run.
    """

    def __init__(self, run: RunConfig, *, reached_target_at_s: float | None = None) -> None:
        self._run = run
        self.reached_target_at_s = reached_target_at_s

    @classmethod
    def resumed(cls, run: RunConfig, last: Mapping[str, Any]) -> StopCondition:
        """The goal of a run that goes on from its last metrics line, {} for a new one.

        What an earlier part reached counts as long as the target is the same.
        """
        same = last.get("target_return", run.target_return) == run.target_return
        reached = last.get("reached_target_at_s") if same else None
        return cls(run, reached_target_at_s=reached)

    def fields(self) -> dict[str, float | None]:
        """What a metrics line says of it: the target, and when it was met."""
        return {
            "target_return": self._run.target_return,
            "reached_target_at_s": self.reached_target_at_s,
        }

    def observe(self, line: Mapping[str, Any]) -> str | None:
        """Why the run is over by this metrics line, None while it is not: the first `reached`."""
        return next(iter(self.reached(line)), None)

    def reached(self, line: Mapping[str, Any]) -> dict[str, float]:
        """All that ends the run by this metrics line: "target_reached" and names of bounds.

        Each with how far the run is: when it met the target in seconds, or the bounded count. A
        mean of fewer than 100 episodes meets no target.
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
            # an actor's own claim ends no run: what the trainer has accounted for does
            ("max_env_steps", "accounted_env_steps", run.max_env_steps),
            ("max_updates", "updates", run.max_updates),
            ("max_wall_s", "time_s", run.max_wall_s),
        ]
        for reason, name, bound in bounds:
            if bound is not None and line[name] >= bound:
                reasons[reason] = line[name]
        return reasons
