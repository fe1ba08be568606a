"""`aclearn top`: shows from a run's folder where its time goes, during the run or after it."""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from aclearn.errors import RunFolderError
from aclearn.launch import StopFlag
from aclearn.metrics import PART_SECONDS
from aclearn.metrics.formatting import duration, percent
from aclearn.runs import MetricsTail, RunFolder
from aclearn.telemetry import TOTAL, WAITING_FOR
from aclearn.views.live_console import Layout, LiveConsole, console_of
from aclearn.views.run_state import how_it_ended, read_goal

#: Seconds between two updates, and between two checks of the stop flag.
_EVERY_S = 1.0
_LOOK_EVERY_S = 0.1
#: Reported silence of the metrics file; lines are due every few seconds.
_SILENT_AFTER_S = 15.0
#: With less free space the last line of metrics may be missing.
_LEAST_FREE_BYTES = 16 * 1024
#: Window of the parts' shares, as in a metrics line.
_WINDOW_S = 10.0
#: Parts below this share of a role's time are not shown.
_LEAST_SHARE = 0.005


class TopView(LiveConsole):
    """The console's view of a run and, below it, the parts of each role's work."""

    def __init__(
        self, goal: Mapping[str, float | None], *, name: str, console: Console | None = None
    ) -> None:
        self._recent: deque[Mapping[str, Any]] = deque()
        super().__init__(goal, name=name, console=console)

    def observe(self, line: Mapping[str, Any]) -> None:
        """Add a metrics line without drawing it."""
        super().observe(line)
        self._recent.append(line)
        newest_s = float(line.get("time_s") or 0.0)
        # the newest line at or before the window's start stays
        while len(self._recent) > 2 and _time_s(self._recent[1]) <= newest_s - _WINDOW_S:
            self._recent.popleft()

    def draw(self, layout: Layout, width: int) -> RenderableType:
        """The view in one layout, `width` cells wide."""
        shares = part_shares(self._recent[0], self._recent[-1]) if self._recent else {}
        picture = super().draw(layout, width)
        return Group(picture, _part_rows(shares)) if shares and layout.below else picture


def part_shares(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Role → part of its work → share of its threads' time between two metrics lines.

    Without waits, which are in `wait_share`, and without roles that did not report between the
    lines.
    """
    found: dict[str, dict[str, float]] = {}
    earlier = before.get(PART_SECONDS) or {}
    for role, parts in (after.get(PART_SECONDS) or {}).items():
        old = earlier.get(role) or {}
        spent = {part: seconds - old.get(part, 0.0) for part, seconds in parts.items()}
        total = spent.pop(TOTAL, 0.0)
        if total > 0.0:
            work = {p: s / total for p, s in spent.items() if not p.startswith(WAITING_FOR)}
            found[role] = work
    return found


def top(run_dir: Path, *, once: bool, stream: TextIO, stop: StopFlag) -> None:
    """Show the run in `run_dir`: in a terminal until it is over or `stop` is set, else once.

    Raises:
        RunFolderError: it is no run folder, or has no metrics yet.
    """
    folder = RunFolder.open(run_dir)
    tail = MetricsTail(folder.metrics_path)
    lines = tail.read()
    if not lines:
        raise RunFolderError(
            f"{folder.metrics_path} is empty: the run has written no metrics yet; wait a few "
            "seconds, or look into its logs"
        )
    goal = read_goal(folder.config_path)
    console = console_of(stream)
    view = TopView(goal, name=folder.name, console=console)
    for line in lines:
        view.observe(line)
    live = stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")
    if once or not live or how_it_ended(folder, lines[-1]) is not None:
        console.print(view.view())
        console.print(Text(_state(folder, lines[-1])))
        return
    with view:
        newest = _follow(folder, tail, view, lines[-1], stop)
    console.print(Text(_state(folder, newest)))


def _follow(
    folder: RunFolder,
    tail: MetricsTail,
    view: TopView,
    newest: Mapping[str, Any],
    stop: StopFlag,
) -> Mapping[str, Any]:
    """Draw each new line until the run is over or `stop` is set; returns the newest line."""
    due, told = time.monotonic(), False
    while not stop:
        if time.monotonic() < due:
            time.sleep(_LOOK_EVERY_S)
            continue
        due = time.monotonic() + _EVERY_S
        new = tail.read()
        if new:
            *earlier, newest = new
            for line in earlier:
                view.observe(line)
            view.update(newest, [])
            told = False
        elif how_it_ended(folder, newest) is not None:
            break
        elif not told and _silent_s(folder) > _SILENT_AFTER_S:
            told = True
            view.note(_state(folder, newest))
    return newest


def _state(folder: RunFolder, newest: Mapping[str, Any]) -> str:
    """The age of the numbers, in one line."""
    reason = how_it_ended(folder, newest)
    if reason is not None:
        return f"the run is over: {reason}"
    silent_s = _silent_s(folder)
    if silent_s > _SILENT_AFTER_S:
        return f"no new metrics for {duration(silent_s)}: {_why_silent(folder)}"
    return f"the run continues; metrics of {silent_s:.0f} s ago"


def _why_silent(folder: RunFolder) -> str:
    if shutil.disk_usage(folder.path).free < _LEAST_FREE_BYTES:
        return f"no space is left in {folder.path}"
    return "the run was killed, or its monitor hangs"


def _silent_s(folder: RunFolder) -> float:
    try:
        return max(0.0, time.time() - folder.metrics_path.stat().st_mtime)
    except OSError:
        return 0.0


def _time_s(line: Mapping[str, Any]) -> float:
    return float(line.get("time_s") or 0.0)


def _part_rows(shares: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(box=None, padding=(0, 2), pad_edge=True, header_style="dim")
    table.add_column("Role", no_wrap=True)
    table.add_column("Parts of its work, share of its threads' time")
    for role in sorted(shares):
        parts = sorted(shares[role].items(), key=lambda item: -item[1])
        words = "  ".join(f"{part} {percent(s)}" for part, s in parts if s >= _LEAST_SHARE)
        table.add_row(Text(role, style="bold"), words or "none")
    return table
