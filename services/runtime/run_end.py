"""The end of a run in words, when it comes and when somebody wants to go on with the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aclearn.config import Config
from aclearn.control import StopCondition
from aclearn.errors import RunFolderError
from aclearn.runs import RunFolder, is_metrics_line
from services.runtime.role_folder import check_same_run

#: Numbers in every summary that say whether the run is over; `return_mean_100` may be None.
_JUDGED: Final = ("time_s", "accounted_env_steps", "updates", "episodes_in_mean")


def closing_words(config: Config, summary: Mapping[str, Any]) -> str:
    """What a run came to, from its `summary.json`."""
    mean, reached = summary["return_mean_100"], summary["reached_target_at_s"]
    words = f"run {config.run.name} ended: {summary['reason']}"
    if mean is not None:
        words += f", return {mean:.2f} (mean of {summary['episodes_in_mean']})"
    words += f", {summary['env_steps']} agent steps in {summary['wall_s']:.0f} s"
    if reached is not None:
        words += f"; target {config.run.target_return} reached at {reached:.0f} s"
    return f"{words}; {Path(config.run.dir) / str(config.run.name)}"


def why_over(config: Config) -> str | None:
    """Why the run that is there would end at once, and the key that lets it go on; None if not.

    Args:
        config: that the run would go on with.

    Raises:
        ConfigError: the run that is there is one of another environment or policy.
        RunFolderError: there is no run, or its files cannot be read or are no run's.
    """
    folder = RunFolder.open(Path(config.run.dir) / str(config.run.name))
    check_same_run(config, folder)
    summary = folder.read_summary()
    if summary is None:
        return None
    _check(summary, folder.summary_path)
    goal = StopCondition.resumed(config.run, summary)
    reason = goal.observe(summary, episodes_in_mean=summary["episodes_in_mean"])
    if reason is None:
        return None
    if reason == "target_reached":
        seen = f"its target of {config.run.target_return:g} at {goal.reached_target_at_s:.0f} s"
        keys = "run.stop_at_target=false or a higher run.target_return"
    else:
        bound = getattr(config.run, reason)
        seen, keys = f"run.{reason}={bound:g}", f"a higher bound, e.g. run.{reason}={2 * bound:g}"
    return f"the run in {folder.path} is over: it has reached {seen}. To go on with it, give {keys}"


def _check(summary: Mapping[str, Any], path: Path) -> None:
    missing = [name for name in _JUDGED if summary.get(name) is None]
    if "return_mean_100" not in summary:
        missing.append("return_mean_100")
    if missing or not is_metrics_line({**summary, "reason": None}):
        what = f"it has no {missing[0]}" if missing else "it has values of another type"
        raise RunFolderError(
            f"{path} is no summary of this version of aclearn ({what}); remove the file to go on "
            "with the run, or start another one under another run.name"
        )
