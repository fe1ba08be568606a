"""The evaluations of a run, as the monitor sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aclearn.config import Config
from aclearn.metrics.names import EVALUATED, INFO, POLICIES
from aclearn.wire import Heartbeat

#: Gauges of an evaluator that say which version its newest judgement is of.
_VERSION = ("generation", "version")


class Judge:
    """Counts the evaluations, keeps the newest and the best, and says when something is amiss.

    Pure: time is an argument. A version is judged once, however often its judgement is reported.

    Args:
        last: the last metrics line of an earlier part of the run; {} for none. Means of another
            test are forgotten.
    """

    def __init__(self, config: Config, last: Mapping[str, Any]) -> None:
        self._every_s, self._judges = config.evaluator.every_s, config.judge == "evaluator"
        self._missing_after_s = config.monitor.silent_after_s
        self._bounds = [
            f"run.{key}"
            for key, bound in config.run.bounds().items()
            if key.startswith("max_") and bound is not None
        ]
        self._test = config.evaluator_test
        self._count = int(last.get("evaluator_evaluations") or 0)
        self._restarts, self._incarnation = int(last.get("evaluator_restarts") or 0), ""
        if last.get("evaluator_test") != self._test:
            last = {}
        self._newest = _newest(last)
        self._of_policies = {
            name: _newest(part) for name, part in (last.get(POLICIES) or {}).items()
        }
        self._since_best = int(last.get("evaluator_since_best") or 0)
        self._best: float | None = last.get("evaluator_best_return")
        self._generation: int | None = None
        age_s = last.get("evaluator_age_s")
        self._given_at = None if age_s is None else float(last["time_s"]) - age_s
        self._present_at: float | None = None
        self._told: set[str] = set()

    def take(self, incarnation: str, heartbeat: Heartbeat, time_s: float) -> None:
        """Take an evaluator's heartbeat, at `time_s` of the run's clock."""
        gauges = heartbeat.gauges
        self._restarts += self._incarnation not in ("", incarnation)
        self._incarnation = incarnation
        if any(name not in gauges for name in (*_VERSION, "age_s")):
            return  # nothing is judged yet
        shown = {f"evaluator_{name}": value for name, value in gauges.items()}
        at = [f"evaluator_{name}" for name in _VERSION]
        new = [self._newest.get(name) for name in at] != [shown[name] for name in at]
        self._newest = _newest(shown)
        self._of_policies = {
            name: _newest({f"evaluator_{gauge}": value for gauge, value in part.gauges.items()})
            for name, part in heartbeat.policies.items()
        }
        self._given_at = time_s - gauges["age_s"]
        if not new:
            return
        self._count += 1
        if (mean := gauges.get("return_mean")) is None:
            return  # of several policies that nothing judges together
        if self._best is None or mean > self._best:
            self._best, self._since_best = mean, 0
        else:
            self._since_best += 1

    def take_saved(self, generation: int, best_return: float | None) -> None:
        """Take the best mean that a new trainer knows: one just before a death may be lost."""
        if not self._judges or generation == self._generation:
            return
        self._generation = generation
        if self._best is not None and (best_return is None or best_return < self._best):
            self._best = best_return

    def fields(self, time_s: float) -> dict[str, float | str | None]:
        """The fields of a metrics line at `time_s` of the run's clock."""
        return {
            **dict.fromkeys(EVALUATED),
            **self._newest,
            "evaluator_age_s": None if self._given_at is None else time_s - self._given_at,
            "evaluator_evaluations": self._count,
            "evaluator_since_best": self._since_best,
            "evaluator_best_return": self._best,
            "evaluator_test": self._test,
            "evaluator_restarts": self._restarts,
        }

    def fields_of_policies(self) -> dict[str, dict[str, float]]:
        """Policy → its figures of the newest evaluation, in a run with several."""
        return self._of_policies

    def look(self, present: bool, now: float) -> Iterator[str]:
        """What the user is to know; each once until it has changed.

        Args:
            present: whether there is an evaluator.
            now: seconds of the monitor's clock.
        """
        if present or self._present_at is None:
            self._present_at = now
            if present and "missing" in self._told:
                self._told.remove("missing")
                yield "the evaluator is back"
        elif now - self._present_at >= self._missing_after_s and "missing" not in self._told:
            self._told.add("missing")
            yield f"there is no evaluator since {now - self._present_at:.0f} s{self._meaning()}"
        seconds = self._newest.get("evaluator_seconds")
        if self._every_s and seconds and seconds > self._every_s and "late" not in self._told:
            self._told.add("late")
            yield (
                f"evaluator.every_s: {self._every_s:g} s is less than an evaluation lasts "
                f"({seconds:.3g} s), so that the next one begins as the last ends; raise it or "
                "evaluator.cpu_share, or lower evaluator.episodes"
            )

    def _meaning(self) -> str:
        if not self._judges:
            return ": training goes on, and is not evaluated; see its log"
        bounds = " or ".join(self._bounds)
        end = f"ends by {bounds}" if bounds else "does not end by itself"
        return (
            ", which judges this run (run.judge): until it is back no checkpoint becomes the best, "
            f"no target is reached, and the run {end}; see its log"
        )


def _newest(figures: Mapping[str, Any]) -> dict[str, float]:
    """Those of the figures that are of the newest evaluation."""
    info = (name for name in figures if name.startswith(f"evaluator_{INFO}"))
    return {name: figures[name] for name in (*EVALUATED, *info) if figures.get(name) is not None}
