"""The end of a run, and the time of its target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aclearn.config import Config, Judge, RunConfig
from aclearn.metrics import EPISODES_FOR_TARGET

#: Why a run ends after `evaluator.stop_after`.
EARLY_STOP: Final = "early_stop"
#: Judge → the figure of a metrics line that is its mean return.
_MEANS: Final[Mapping[Judge, str]] = {
    "training": "return_mean_100",
    "evaluator": "evaluator_return_mean",
}


Target = float | Mapping[str, float] | None


class StopCondition:
    """Compares metrics lines with `run.target_return` and the run's bounds. Pure.

    Args:
        run: the bounds; None means unbounded.
        judge: whose mean return is compared with the target.
        stop_after: `evaluator.stop_after`.
        reached_target_at_s: when an earlier part of this run met the target.
    """

    def __init__(
        self,
        run: RunConfig,
        *,
        judge: Judge = "training",
        stop_after: int | None = None,
        reached_target_at_s: float | None = None,
    ) -> None:
        self._run, self._judge, self._stop_after = run, judge, stop_after
        self.reached_target_at_s = reached_target_at_s

    @classmethod
    def resumed(cls, config: Config, last: Mapping[str, Any]) -> StopCondition:
        """The condition of a run that continues after its last metrics line, {} for a new one.

        A target that an earlier part reached counts while the target and its test stay the same.
        """
        run = config.run
        same = _targets(last, run.target_return) == run.target_return
        if config.judge == "evaluator":
            same &= last.get("evaluator_test") == config.evaluator_test
        return cls(
            run,
            judge=config.judge,
            stop_after=config.evaluator.stop_after,
            reached_target_at_s=last.get("reached_target_at_s") if same else None,
        )

    def fields(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a metrics line: the judged return, the target, and when it was met."""
        target = self._run.target_return
        return {
            "judged_return": line.get(_MEANS[self._judge]),
            "target_return": None if isinstance(target, Mapping) else target,
            "reached_target_at_s": self.reached_target_at_s,
        }

    def fields_of_policies(self) -> dict[str, dict[str, float]]:
        """Policy → its target, in a run with several."""
        target = self._run.target_return
        by_policy = target if isinstance(target, Mapping) else {}
        return {policy: {"target_return": number} for policy, number in by_policy.items()}

    def observe(self, line: Mapping[str, Any]) -> str | None:
        """The first reason in `reached`, None while the run continues."""
        return next(iter(self.reached(line)), None)

    def reached(self, line: Mapping[str, Any]) -> dict[str, float]:
        """All reasons to end the run by this metrics line.

        They are "target_reached", "early_stop" and names of bounds. The values are the seconds at
        which the target was met, the evaluations since the best, or the bounded counts. A mean of
        fewer than 100 episodes of training meets no target.
        """
        run = self._run
        if self.reached_target_at_s is None and self._is_met(line):
            self.reached_target_at_s = float(line["time_s"])
        reasons: dict[str, float] = {}
        if self.reached_target_at_s is not None and run.stop_at_target:
            reasons["target_reached"] = self.reached_target_at_s
        since_best = line.get("evaluator_since_best")
        if self._stop_after is not None and since_best and since_best >= self._stop_after:
            reasons[EARLY_STOP] = since_best
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

    def _is_met(self, line: Mapping[str, Any]) -> bool:
        target = self._run.target_return
        if isinstance(target, Mapping):
            parts = line.get("policies", {})
            return all(self._reaches(parts.get(name, {}), each) for name, each in target.items())
        return target is not None and self._reaches(line, target)

    def _reaches(self, line: Mapping[str, Any], target: float) -> bool:
        mean = line.get(_MEANS[self._judge])
        few = self._judge == "training" and line.get("episodes_in_mean", 0) < EPISODES_FOR_TARGET
        return mean is not None and not few and bool(mean >= target)


def _targets(line: Mapping[str, Any], default: Target) -> Target:
    """The target of a metrics line; of a line without one the default."""
    if not isinstance(default, Mapping):
        before: float | None = line.get("target_return", default)
        return before
    parts = {name: part.get("target_return") for name, part in line.get("policies", {}).items()}
    return {name: each for name, each in parts.items() if each is not None} if parts else default
