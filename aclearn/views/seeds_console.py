"""Views of several runs at a time: a table on a terminal, marked lines elsewhere. Imports rich."""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from aclearn.metrics.formatting import (
    amount,
    duration,
    printable,
    returns_of_policies,
    score,
)
from aclearn.views.console import PlainConsole, RunConsole
from aclearn.views.live_console import console_of
from aclearn.views.progress import Progress, ProgressEstimate

#: Newest events below the table; the logs have all.
_EVENTS: Final = 5
#: Rows that are no runs, besides the events: the head, the rest of the runs, and a spare one.
_OTHER_ROWS: Final = 3
#: Of more runs than fit, those in other states are counted.
_SHOWN_FIRST: Final = ("failed", "running")
_STATE_COLOURS: Final = {"running": "green", "failed": "red", "waiting": "dim"}


class SeedsConsole:
    """Makes the console of each run; used in a `with` block.

    Args:
        names: of all runs, in the order of the table.
    """

    def __init__(
        self,
        goal: Mapping[str, float | None],
        names: Sequence[str],
        *,
        stream: TextIO | None = None,
    ) -> None:
        self._goal, self._stream = goal, sys.stdout if stream is None else stream
        live = self._stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")
        self._table = SeedsTable(goal, names, console_of(self._stream)) if live else None

    def __enter__(self) -> SeedsConsole:
        if self._table is not None:
            self._table.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._table is not None:
            self._table.stop()

    def console(self, name: str) -> RunConsole:
        """The console of a run that starts."""
        if self._table is not None:
            return self._table.rows[name]
        return PlainConsole(self._goal, name=name, stream=self._stream, prefix=f"{name}: ")

    def end(self, name: str, state: str, words: str) -> None:
        """Show how a run has ended; `state` is one word for the table."""
        if self._table is not None:
            self._table.rows[name].state = state
            self._table.note(name, words)
        else:
            self._stream.write("".join(f"{name}: {line}\n" for line in words.splitlines()))
            self._stream.flush()


class SeedsTable:
    """Draws a row for each run at each update, in the calling thread."""

    def __init__(
        self, goal: Mapping[str, float | None], names: Sequence[str], console: Console
    ) -> None:
        self.rows = {name: _Row(self, name, goal) for name in names}
        self._events: deque[str] = deque(maxlen=_EVENTS)
        self._console = console
        self._live = Live(
            get_renderable=self.view,
            console=console,
            auto_refresh=False,
            vertical_overflow="crop",
        )

    def start(self) -> None:
        """Begin to show."""
        self._live.start(refresh=True)

    def stop(self) -> None:
        """Draw the last figures, and restore the terminal."""
        self._live.stop()

    def refresh(self) -> None:
        """Draw the newest figures."""
        self._live.refresh()

    def note(self, name: str, text: str) -> None:
        """Show an event of a run below the table."""
        self._events.append(printable(f"{name}  {text}"))
        self._live.refresh()

    def view(self) -> Group:
        """The table, and the newest events."""
        table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
        for title in ("Run", "State"):
            table.add_column(title, no_wrap=True)
        for title in ("Return", "Steps", "Learned/s", "Time"):
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("", ratio=1)
        table.add_column("Progress", no_wrap=True)
        rows = list(self.rows.values())
        most = max(1, self._console.height - _EVENTS - _OTHER_ROWS)
        if len(rows) > most:
            # sorted keeps the order of equal ones
            rows = sorted(rows, key=lambda row: row.state not in _SHOWN_FIRST)[:most]
        for row in rows:
            table.add_row(*row.cells())
        left = Counter(row.state for row in self.rows.values() if row not in rows)
        words = ", ".join(f"{count} {state}" for state, count in left.items())
        more = [Text(f"and {words}", style="dim")] if left else []
        return Group(table, *more, *(Text(event, style="dim") for event in self._events))


class _Row:
    """One run's part of the table: a `RunConsole`."""

    def __init__(self, table: SeedsTable, name: str, goal: Mapping[str, float | None]) -> None:
        self.state = "waiting"
        self._table, self._name = table, name
        self._estimate = ProgressEstimate(goal)
        self._progress: Progress | None = None
        self._line: Mapping[str, Any] = {}

    def __enter__(self) -> _Row:
        self.state = "running"
        self._table.refresh()
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> None:
        self._line, self._progress = line, self._estimate.observe(line)
        self._table.refresh()

    def note(self, text: str) -> None:
        self._table.note(self._name, text)

    def cells(self) -> list[Any]:
        line, progress = self._line, self._progress
        value = line.get("judged_return")
        done = 0.0 if progress is None else progress.fraction or 0.0
        return [
            Text(self._name, style="bold"),
            Text(self.state, style=_STATE_COLOURS.get(self.state, "")),
            returns_of_policies(line) or ("-" if value is None else score(value)),
            amount(line.get("env_steps")),
            amount(line.get("learned_steps_per_s")),
            "-" if not line else duration(line.get("time_s")),
            ProgressBar(total=1.0, completed=done, animation_time=0.0),
            Text("" if progress is None else progress.label),
        ]
