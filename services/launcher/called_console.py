"""Calls a function of the user's with each metrics line of a run that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from aclearn.launch import StopFlag
from aclearn.runs import MetricsTail
from aclearn.views import RunConsole

#: Gets a metrics line; returning False stops the run.
OnMetrics = Callable[[dict[str, Any]], object]
#: Reasons of the run's end.
STOPPED: Final = "on_metrics"
FAILED: Final = "on_metrics failed"


class CalledConsole:
    """A console that also gives each new line of `metrics.jsonl` to a function, in this thread.

    After the function has returned False, or raised, it gets no more lines and the run ends in
    order, with a checkpoint.

    Args:
        path: of `metrics.jsonl`; its present lines, of a resumed run, are left out.

    Attributes:
        error: what the function raised, for the caller of the run; None if nothing.
    """

    def __init__(
        self, console: RunConsole, on_metrics: OnMetrics, path: Path, stop: StopFlag
    ) -> None:
        self._console, self._on_metrics, self._stop = console, on_metrics, stop
        self._path, self._tail = path, MetricsTail(path)
        self._over = False
        self.error: BaseException | None = None
        if path.exists():
            self._tail.read()

    def __enter__(self) -> CalledConsole:
        self._console.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._console.__exit__(*error)
        self._give()  # the last line is written at the run's end

    def update(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> None:
        """Show the newest line, and give the function all that are new in the file."""
        self._console.update(line, roles)
        self._give()

    def note(self, text: str) -> None:
        """Show an event."""
        self._console.note(text)

    def _give(self) -> None:
        if self._over or not self._path.exists():
            return
        for line in self._tail.read():
            try:
                goes_on = self._on_metrics(line)
            except BaseException as error:
                self.error, self._over = error, True
                self._stop.set(FAILED)
                return
            if isinstance(goes_on, bool | np.bool_) and not goes_on:
                self._over = True
                self._stop.set(STOPPED)
                return
