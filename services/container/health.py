"""The health of a container's roles, from the files that they write."""

from __future__ import annotations

import json
from pathlib import Path

import psutil

from services.role.health import HealthReport


def read_reports(directory: Path) -> list[HealthReport]:
    """All readable reports in `directory`."""
    reports = []
    for path in sorted(directory.glob("*.json")):
        try:
            reports.append(HealthReport(**json.loads(path.read_bytes())))
        except (OSError, ValueError, TypeError):
            continue
    return reports


def judge(report: HealthReport, now: float, *, runs: bool) -> tuple[bool, str]:
    """Whether a role works, and the reason in one line.

    Args:
        now: monotonic seconds, of the same machine.
        runs: whether its process runs.
    """
    silence_s = now - report.at
    if not runs:
        return False, f"{report.name} has died (process {report.pid})"
    if silence_s > report.silent_after_s:
        return False, f"{report.name} hangs: no report for {silence_s:.0f} s"
    if report.waits_for:
        return False, f"{report.name} waits for {report.waits_for}"
    return True, f"{report.name} works"


def health_of(directory: Path, now: float) -> tuple[bool, str]:
    """Whether every role that reports to `directory` works, and the reason in one line."""
    judged = [judge(r, now, runs=psutil.pid_exists(r.pid)) for r in read_reports(directory)]
    if not judged:
        return False, f"no role runs here: no report in {directory}"
    return all(good for good, _ in judged), "; ".join(why for _, why in judged)
