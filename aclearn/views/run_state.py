"""How a run stands, by its folder: its state, how it ended, its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aclearn.config import RunConfig, YamlError, parse_yaml
from aclearn.config.model import single_target
from aclearn.errors import RunFolderError
from aclearn.runs import RunFolder, is_locked, is_metrics_line

#: The state of a run that some process writes.
RUNNING: Final = "running"


def run_state(path: Path, newest: Mapping[str, Any]) -> str:
    """In one or two words: "running", "unfinished", or why the run ended.

    Args:
        newest: its newest metrics line; {} before the first.
    """
    if is_locked(path):
        return RUNNING
    try:
        reason = how_it_ended(RunFolder.open(path), newest)
    except RunFolderError:
        reason = None
    if reason is None:  # killed, or it never learned
        return "unfinished"
    return reason.partition(":")[0]  # the cause of a failure is in the summary


def how_it_ended(folder: RunFolder, newest: Mapping[str, Any]) -> str | None:
    """Why the run is over; None while it continues, also after a `--resume`."""
    summary = folder.read_summary()
    # a resumed run has the summary of its first part until it ends again
    if summary is None or not is_metrics_line({"time_s": summary.get("time_s")}):
        return None
    if float(summary.get("time_s") or 0.0) < float(newest.get("time_s") or 0.0):
        return None
    return str(summary.get("reason"))


def read_goal(config: Path) -> dict[str, float | None]:
    """The bounds of a run for `ProgressEstimate`; empty if they cannot be read.

    Read as bare YAML, so that runs of older versions with other keys work.
    """
    try:
        run = parse_yaml(config.read_text(encoding="utf-8")).value["run"]
        known = {name: run.get(name) for name in RunConfig().bounds()}
        known["target_return"] = single_target(known["target_return"])
        return known if is_metrics_line(known) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, YamlError):
        return {}
