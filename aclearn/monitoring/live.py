"""The live view of a run on a terminal. Imports rich: only `open_console` imports this module."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from aclearn.monitoring.progress import Progress, ProgressEstimate
from aclearn.monitoring.readings import queue_fills
from aclearn.monitoring.steady import SteadyBottleneck
from aclearn.monitoring.unwritten import unwritten
from aclearn.monitoring.waits import WORKING
from aclearn.monitoring.wording import amount, duration, percent, printable

_EVENTS_SHOWN = 5
_ROLES_SHOWN = 10
_BAR_CELLS = 24
_WAIT_COLOURS = ("yellow", "magenta", "cyan", "red", "blue")
_STATE_COLOURS = {"running": "green", "done": "dim", "waiting": "yellow", "failed": "red"}


class LiveConsole:
    """Draws the whole view anew at each update, in the calling thread; there is no other.

    Args:
        goal: see `ProgressEstimate`.
        name: of the run.
        stream: the terminal.
        console: instead of the one made for `stream`.
    """

    def __init__(
        self,
        goal: Mapping[str, float | None],
        *,
        name: str,
        stream: TextIO | None = None,
        console: Console | None = None,
    ) -> None:
        self._estimate = ProgressEstimate(goal)
        self._bottleneck = SteadyBottleneck()
        self._found = self._bottleneck.observe({})
        self._name = name
        self._events: deque[str] = deque(maxlen=_EVENTS_SHOWN)
        self._line: Mapping[str, Any] = {}
        self._roles: Sequence[Mapping[str, Any]] = ()
        self._progress = Progress("waiting for the first figures", 0.0, None, None)
        self._live = Live(
            get_renderable=self.view,
            console=console if console is not None else Console(file=stream),
            auto_refresh=False,
        )

    def __enter__(self) -> LiveConsole:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def update(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> None:
        """Draw this metrics line and these roles."""
        self._roles = roles
        self.take_in(line)
        self._live.refresh()

    def take_in(self, line: Mapping[str, Any]) -> None:
        """Take a metrics line without drawing it, as those from before the view."""
        self._line = line
        self._progress = self._estimate.observe(line)
        self._found = self._bottleneck.observe(line)

    def note(self, text: str) -> None:
        """Put an event below the figures; the last few stay."""
        at = duration(self._line.get("time_s") or 0.0)
        self._events.append(f"{at}  {printable(text)}")
        self._live.refresh()

    def view(self) -> RenderableType:
        """The whole picture of what was last told."""
        shares = self._line.get("wait_share") or {}
        # The roles come last: they are what a low terminal may cut off.
        parts: list[RenderableType] = [
            self._progress_rows(),
            Text(),
            _figures(self._line),
            Text(),
            _shares(shares),
            Text.assemble(("Bottleneck  ", "bold"), self._found.sentence),
            *(Text(text, style="red") for text in unwritten(self._line)),
        ]
        if self._events:
            parts += [Text(), *(Text(event, style="dim") for event in self._events)]
        if self._roles:
            parts += [Text(), _role_table(self._roles)]
        return Panel(Group(*parts), title=Text(self._name, style="bold"), box=box.ROUNDED)

    def _progress_rows(self) -> Group:
        progress = self._progress
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(no_wrap=True)
        row.add_column(ratio=1)
        bar = ProgressBar(
            total=1.0,
            completed=progress.fraction or 0.0,
            pulse=progress.fraction is None,
            animation_time=0.0,  # a pulse that stands still: the view moves with its figures only
        )
        row.add_row(Text(progress.label, style="bold"), bar)
        gone = duration(self._line.get("time_s") or 0.0)
        return Group(row, Text(f"{gone} gone, {progress.remaining()}"))


def _figures(line: Mapping[str, Any]) -> Table:
    value = line.get("return_mean_100")
    dropped = line.get("dropped_steps") or {}
    by_reason = ", ".join(f"{name} {amount(n)}" for name, n in sorted(dropped.items()) if n)
    fills = queue_fills(line)
    lag = f"{line.get('lag_mean') or 0.0:.1f} mean, {line.get('lag_max') or 0.0:.0f} max"
    left = [
        ("Return", "-" if value is None else f"{value:.2f}"),
        ("Episodes", amount(line.get("episodes"))),
        ("Environment steps", amount(line.get("env_steps"))),
        ("Learned steps", amount(line.get("learned_steps"))),
        ("In flight", amount(line.get("in_flight_steps"))),
        ("Dropped", by_reason or "none"),
    ]
    right = [
        ("Environment", f"{amount(line.get('env_steps_per_s'))} steps/s"),
        ("Learned", f"{amount(line.get('learned_steps_per_s'))} steps/s"),
        ("Predictions", f"{amount(line.get('pps'))} /s"),
        ("Batches", f"{amount(line.get('tps'))} /s"),
        ("Updates", f"{amount(line.get('updates'))}, epoch {line.get('epoch', 0)}"),
        ("Lag", f"{lag} versions"),
    ]
    table = Table.grid(padding=(0, 2), expand=True)
    for ratio in (None, 1, None, 1):
        table.add_column(ratio=ratio, no_wrap=ratio is None)
    for (name, text), (other, other_text) in zip(left, right, strict=True):
        table.add_row(Text(name, style="dim"), text, Text(other, style="dim"), other_text)
    for queue, fill in fills.items():
        colour = "red" if fill >= 0.8 else "green"
        bar = _bar([(fill, colour)]).append(f" {percent(fill)}")
        table.add_row(Text(queue.capitalize(), style="dim"), bar)
    return table


def _shares(wait_share: Mapping[str, Mapping[str, float]]) -> Table:
    """A bar a role: what part of its time it works, and for what it waits the rest."""
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for role in sorted(wait_share):
        shares = wait_share[role]
        waits = sorted(label for label in shares if label != WORKING)
        colours = {label: _WAIT_COLOURS[i % len(_WAIT_COLOURS)] for i, label in enumerate(waits)}
        working = shares.get(WORKING, 0.0)
        words = Text.assemble((f"works {percent(working)}", "green"))
        for label in sorted(waits, key=lambda label: -shares[label]):
            words.append("  ").append(f"{label} {percent(shares[label])}", style=colours[label])
        segments = [(working, "green"), *((shares[label], colours[label]) for label in waits)]
        table.add_row(Text(role, style="bold"), _bar(segments), words)
    return table


def _bar(segments: Sequence[tuple[float, str]]) -> Text:
    """A bar of `_BAR_CELLS` cells; segments are rounded so that their sum is right."""
    bar, filled, total = Text(), 0, 0.0
    for share, colour in segments:
        total += share if math.isfinite(share) else 0.0
        until = min(_BAR_CELLS, max(filled, round(total * _BAR_CELLS)))
        bar.append("━" * (until - filled), style=colour)
        filled = until
    return bar.append("━" * (_BAR_CELLS - filled), style="grey23")


def _role_table(roles: Sequence[Mapping[str, Any]]) -> Table:
    """The roles; with many of them those in trouble first, then the rest as a number."""
    trouble = [r for r in roles if r.get("state") != "running" or r.get("restarts")]
    shown = list(roles)
    if len(roles) > _ROLES_SHOWN:
        shown = [*trouble, *(role for role in roles if role not in trouble)][:_ROLES_SHOWN]
    table = Table(box=None, padding=(0, 2), pad_edge=False, header_style="dim")
    for title in ("Role", "State"):
        table.add_column(title, no_wrap=True)
    for title in ("Restarts", "Process"):
        table.add_column(title, justify="right", no_wrap=True)
    for role in shown:
        state = str(role.get("state", "?"))
        restarts = int(role.get("restarts") or 0)
        table.add_row(
            Text(printable(str(role.get("name", role.get("role", "?"))))),
            Text(state, style=_STATE_COLOURS.get(state, "")),
            Text(str(restarts), style="yellow" if restarts else ""),
            Text(str(role["pid"]) if role.get("pid") else "-"),
        )
    if len(shown) < len(roles):
        table.add_row(Text(f"and {len(roles) - len(shown)} more", style="dim"))
    return table
