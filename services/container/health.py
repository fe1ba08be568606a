"""The health of a container's roles, from the files that they write."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

from aclearn.errors import ConfigError
from services.role.health import RUNTIME_DIR_VARIABLE, HealthReport


def reports_folder() -> Path:
    """The folder of this container's reports; `ConfigError` without it."""
    directory = os.environ.get(RUNTIME_DIR_VARIABLE)
    if not directory:
        raise ConfigError(
            f"{RUNTIME_DIR_VARIABLE} is not set; set it to one folder for the role and for "
            "`aclearn health`, as the image does"
        )
    return Path(directory)


def read_reports(directory: Path) -> list[HealthReport]:
    """All readable reports in `directory`."""
    reports = []
    for path in sorted(directory.glob("*.json")):
        try:
            reports.append(HealthReport(**json.loads(path.read_bytes())))
        except (OSError, ValueError, TypeError):
            continue
    return reports


def _judge(report: HealthReport, now: float, alive: bool) -> tuple[bool, str]:
    silence_s = now - report.at
    if not psutil.pid_exists(report.pid):
        return False, f"{report.name} has died (process {report.pid})"
    if silence_s > report.silent_after_s:
        return False, f"{report.name} hangs: no report for {silence_s:.0f} s"
    if report.waits_for:
        return alive, f"{report.name} waits for {report.waits_for}"
    return True, f"{report.name} works"


def health_of(directory: Path, now: float, *, alive: bool = False) -> tuple[bool, str]:
    """Whether every role that reports to `directory` works, and the reason in one line.

    Args:
        alive: ask only whether it runs: one that waits for another role is good too.
    """
    judged = [_judge(report, now, alive) for report in read_reports(directory)]
    if not judged:
        return False, f"no role runs here: no report in {directory}"
    return all(good for good, _ in judged), "; ".join(why for _, why in judged)
