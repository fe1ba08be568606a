"""Texts about the end of a run, for its end and for its resumption."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from aclearn.config import Config
from aclearn.control import EARLY_STOP, StopCondition
from aclearn.errors import AclearnError, RunFolderError
from aclearn.metrics import EPISODES_FOR_TARGET, dropped_words
from aclearn.metrics.formatting import evaluated, returns_of_policies
from aclearn.metrics.policies import updates_of_all
from aclearn.runs import RunFolder, is_metrics_line
from services.start.folder import check_same_run, checkpoint_at

#: Numbers of every summary that show whether the run is over; `return_mean_100` may be None.
_JUDGED: Final = ("time_s", "accounted_env_steps", "updates", "episodes_in_mean")


def closing_words(config: Config, summary: Mapping[str, Any]) -> str:
    """The result of a run, from its `summary.json`."""
    mean, reached = summary["return_mean_100"], summary["reached_target_at_s"]
    words = f"run {config.run.name} (seed {config.run.seed}) ended: {summary['reason']}"
    if summary["reason"] == EARLY_STOP:
        words += (
            f" ({summary['evaluator_since_best']} evaluations without a better mean than "
            f"{summary['evaluator_best_return']:.2f})"
        )
    if (by_policy := returns_of_policies(summary)) is not None:
        words += f", return {by_policy}"
    elif mean is not None:
        words += f", return {mean:.2f} (mean of {summary['episodes_in_mean']})"
    if (judged := evaluated(summary)) is not None:
        words += f", evaluated {judged} at {summary['evaluator_env_steps']:.0f} steps"
    words += f", {summary['env_steps']} agent steps in {summary['wall_s']:.0f} s"
    if reasons := dropped_words(summary):
        words += f", not learned: {reasons}"
    if reached is not None:
        words += f"; target {target_words(config)} reached at {reached:.0f} s"
    best, before = summary.get("best_return"), return_before(config)
    if before is not None and (best is None or best < before):
        words += f"; run.init_from had a return of {before:.2f}, "
        words += (
            f"with which a mean of {EPISODES_FOR_TARGET} episodes of this run would be compared"
            if best is None
            else "which no policy of this run has reached"
        )
    if _learned_nothing_in_time(summary):
        words += "; run.max_wall_s, which counts from the command, passed before the first update"
    words += f"; {Path(config.run.dir) / str(config.run.name)}"
    return f"{words}\n{error}" if (error := summary.get("sink_error")) else words


def target_words(config: Config) -> str:
    """The run's target: `18`, or `tagger 10 and runner -2`."""
    target = config.run.target_return
    if isinstance(target, Mapping):
        return " and ".join(f"{name} {_digits(each)}" for name, each in target.items())
    return _digits(target or 0.0)


def next_commands(config: Config, summary: Mapping[str, Any]) -> str:
    """The three commands that usually follow a run, one line each, or that which lets it learn."""
    path = as_given(Path(config.run.dir) / str(config.run.name))
    run = shlex.quote(str(path))
    best = "" if summary.get("best_return") is None else " --at best"
    resume = f"aclearn train {run}/config.yaml --resume"
    if _learned_nothing_in_time(summary) and (bound := config.run.max_wall_s) is not None:
        return f"next: {resume} run.max_wall_s={_further(bound, summary['time_s'])}"
    play, plot = f"aclearn evaluate {run}{best}", f"aclearn plot {run}"
    if StopCondition.resumed(config, summary).reached(summary):
        which = f" --policy {config.learning_policies()[0]}" if config.policies else ""
        last = f"aclearn export {run} --to {shlex.quote(f'{path.name}.onnx')}{best}{which}"
    else:
        last = resume
    return f"next: {play}\n      {plot}\n      {last}"


def as_given(path: Path) -> Path:
    """The path from the current folder, if it is below."""
    with suppress(ValueError):
        return path.relative_to(Path.cwd())
    return path


def _learned_nothing_in_time(summary: Mapping[str, Any]) -> bool:
    return bool(summary["reason"] == "max_wall_s" and summary["updates"] == 0)


def why_over(config: Config) -> str | None:
    """Why the existing run would end at once, and the keys that let it continue; None if not.

    Raises:
        ConfigError: the existing run has another environment or policy.
        RunFolderError: there is no run, or its files cannot be read or are invalid.
    """
    folder = RunFolder.open(Path(config.run.dir) / str(config.run.name))
    check_same_run(config, folder)
    summary = folder.read_summary()
    if summary is None:
        return None
    _check(summary, folder.summary_path)
    goal = StopCondition.resumed(config, summary)
    seen, keys, bounds = [], [], []
    reached = goal.reached(summary)
    for reason, value in reached.items():
        if reason == "target_reached":
            seen.append(f"its target of {target_words(config)} at {value:.0f} s")
            keys.append("run.stop_at_target=false or a higher run.target_return")
        elif reason == EARLY_STOP:
            seen.append(f"{value:.0f} evaluations without a better one (evaluator.stop_after)")
            keys.append(f"evaluator.stop_after=null or a higher one, e.g. {2 * int(value)}")
        else:
            bound = getattr(config.run, reason)
            seen.append(f"run.{reason}={_digits(bound)}")
            bounds.append(f"run.{reason}={_further(bound, value)}")
    if not seen:
        return None
    if bounds:
        higher = "a higher bound" if len(bounds) == 1 else "higher bounds"
        keys.append(f"{higher}, e.g. {' '.join(bounds)}")
    return (
        f"the run in {folder.path} is over: it has reached {' and '.join(seen)}. "
        f"To resume it, give {', and '.join(keys)}"
    )


def _further(bound: float, value: float) -> str:
    """The next multiple of twice the bound: the run may be far beyond a lowered bound."""
    return _digits(2 * bound * (value // (2 * bound) + 1))


def _digits(value: float) -> str:
    """Plain digits; a whole number without a decimal point."""
    return str(int(value)) if float(value).is_integer() else str(value)


def _check(summary: Mapping[str, Any], path: Path) -> None:
    missing = [name for name in _JUDGED if summary.get(name) is None]
    if "return_mean_100" not in summary:
        missing.append("return_mean_100")
    if missing or not is_metrics_line({**summary, "reason": None}):
        what = f"it has no {missing[0]}" if missing else "it has values of another type"
        raise RunFolderError(
            f"{path} is no summary of this version of aclearn ({what}); remove the file to resume "
            "the run, or start another one under another run.name"
        )


def return_before(config: Config) -> float | None:
    """The mean return of the policy in `run.init_from`; None if there is none, or none is known."""
    if config.run.init_from is None:
        return None
    with suppress(AclearnError, KeyError, TypeError, ValueError):  # it may have been removed since
        checkpoint = checkpoint_at(Path(config.run.init_from))
        judged = checkpoint.state["judged"]
        known = None if judged is None else judged["return_mean"]
        if known is None:  # the newest one: as its run ended
            summary = RunFolder.open(checkpoint.path.parents[1]).read_summary()
            if summary and updates_of_all(summary) == checkpoint.label:
                known = summary["return_mean_100"]
        return None if known is None else float(known)
    return None
