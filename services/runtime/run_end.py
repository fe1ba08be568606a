"""Texts about the end of a run: when it comes, and when the user resumes the run."""

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
    """Why the run that is there would end at once, and the keys that let it go on; None if not.

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
    seen, keys, bounds = [], [], []
    reached = goal.reached(summary)
    for reason, value in reached.items():
        if reason == "target_reached":
            seen.append(
                f"its target of {_digits(config.run.target_return or 0.0)} at {value:.0f} s"
            )
            keys.append("run.stop_at_target=false or a higher run.target_return")
        else:
            bound = getattr(config.run, reason)
            # the next multiple of twice the bound: a run may be far beyond a bound that was lowered
            further = 2 * bound * (value // (2 * bound) + 1)
            seen.append(f"run.{reason}={_digits(bound)}")
            bounds.append(f"run.{reason}={_digits(further)}")
    if not seen:
        return None
    if bounds:
        higher = "a higher bound" if len(bounds) == 1 else "higher bounds"
        keys.append(f"{higher}, e.g. {' '.join(bounds)}")
    return (
        f"the run in {folder.path} is over: it has reached {' and '.join(seen)}. "
        f"To go on with it, give {', and '.join(keys)}"
    )


def _digits(value: float) -> str:
    """In plain digits; a whole number without a point."""
    return str(int(value)) if float(value).is_integer() else str(value)


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
