"""The live view of a run on a terminal. Imports rich: only `open_console` imports this module."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from aclearn.metrics import SteadyBottleneck, refusals, unwritten
from aclearn.metrics.formatting import duration, printable
from aclearn.views.flow import Flow, flow_of
from aclearn.views.picture import (
    dropped,
    figures,
    indicators,
    policies,
    queues,
    role_table,
    role_words,
    time_shares,
)
from aclearn.views.progress import Progress, ProgressEstimate

_FRAME_CELLS: Final = 4  # of a panel, to the left and right of its content


@dataclass(frozen=True)
class Layout:
    """How much of a view is shown.

    Attributes:
        roles: rows of the table of roles; 0 for a sentence instead.
        reasons: number of reasons for dropped steps; 0 for none.
        below: whether a view may add rows below the panel.
        indicators: rows of indicators at most, 0 to 4.
    """

    blanks: bool
    events: int
    roles: int
    reasons: int
    below: bool
    indicators: int = 4


#: From the largest to one that fits 80×24.
_LAYOUTS: Final = (
    Layout(blanks=True, events=5, roles=10, reasons=20, below=True),
    Layout(blanks=True, events=5, roles=0, reasons=20, below=True),
    Layout(blanks=False, events=5, roles=0, reasons=20, below=True),
    Layout(blanks=False, events=3, roles=0, reasons=3, below=False),
    Layout(blanks=False, events=1, roles=0, reasons=3, below=False),
    Layout(blanks=False, events=1, roles=0, reasons=3, below=False, indicators=3),
    Layout(blanks=False, events=1, roles=0, reasons=3, below=False, indicators=2),
    Layout(blanks=False, events=1, roles=0, reasons=3, below=False, indicators=1),
    Layout(blanks=False, events=1, roles=0, reasons=3, below=False, indicators=0),
    Layout(blanks=False, events=0, roles=0, reasons=3, below=False, indicators=0),
    Layout(blanks=False, events=0, roles=0, reasons=0, below=False, indicators=0),
)


@dataclass(frozen=True)
class Picture:
    """A view in the largest layout that fits the terminal; for a file, the largest."""

    draw: Callable[[Layout, int], RenderableType]
    fitted: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for layout in _LAYOUTS:
            drawn = self.draw(layout, options.max_width)
            lines = console.render_lines(drawn, options.update(height=None), pad=False)
            if not self.fitted or len(lines) <= options.size.height:
                break
        yield drawn


def console_of(stream: TextIO | None) -> Console:
    """A console that writes to `stream`; one of no size (COLUMNS=0, LINES=0) counts as 80 by 25."""
    console = Console(file=stream)
    if console.width < 1:
        console.width = 80
    if console.height < 1:
        console.height = 25
    return console


class LiveConsole:
    """Draws the whole view at each update, in the calling thread."""

    def __init__(
        self,
        goal: Mapping[str, float | None],
        *,
        name: str,
        stream: TextIO | None = None,
        console: Console | None = None,
    ) -> None:
        self._estimate, self._bottleneck = ProgressEstimate(goal), SteadyBottleneck()
        self._found = self._bottleneck.observe({})
        self._name = name
        self._events: deque[str] = deque(maxlen=_LAYOUTS[0].events)
        self._line: Mapping[str, Any] = {}
        self._roles: Sequence[Mapping[str, Any]] = ()
        self._progress = Progress("waiting for the first metrics", 0.0, None, None)
        self._live = Live(
            get_renderable=lambda: self.view(fitted=True),
            console=console if console is not None else console_of(stream),
            auto_refresh=False,
            vertical_overflow="crop",
        )

    def __enter__(self) -> LiveConsole:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def update(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> None:
        """Draw this metrics line and these roles."""
        self._roles = roles
        self.observe(line)
        self._live.refresh()

    def observe(self, line: Mapping[str, Any]) -> None:
        """Add a metrics line without drawing it."""
        self._line = line
        self._progress = self._estimate.observe(line)
        self._found = self._bottleneck.observe(line)

    def note(self, text: str) -> None:
        """Show an event below the numbers; the last few stay."""
        at = duration(self._line.get("time_s") or 0.0)
        self._events.append(f"{at}  {printable(text)}")
        self._live.refresh()

    def view(self, *, fitted: bool = False) -> RenderableType:
        """The newest view, `fitted` to the height of the terminal, or whole."""
        return Picture(self.draw, fitted)

    def draw(self, layout: Layout, width: int) -> RenderableType:
        """The view in one layout, `width` cells wide."""
        blank = [Text()] if layout.blanks else []
        flow = flow_of(self._line, self._found, self._roles)
        # the most important first: a very low terminal cuts off the end
        parts: list[RenderableType] = [
            self._progress_rows(),
            *blank,
            figures(self._line),
            *self._rows(layout, flow),
            *blank,
            time_shares(flow, width - _FRAME_CELLS),
            *(Text(t, style="red") for t in (*unwritten(self._line), *refusals(self._line))),
            Text.assemble(("Bottleneck  ", "bold"), flow.advice),
        ]
        if events := list(self._events)[len(self._events) - layout.events :]:
            parts += [*blank, *(Text(event, style="dim") for event in events)]
        if self._roles:
            table = role_table(self._roles, layout.roles) if layout.roles else None
            parts += [*blank, table or role_words(self._roles)]
        return Panel(Group(*parts), title=Text(self._name, style="bold"), box=box.ROUNDED)

    def _rows(self, layout: Layout, flow: Flow) -> Iterator[RenderableType]:
        """The rows that some runs have: policies, queues, indicators, reasons for dropped steps."""
        rows: Iterable[RenderableType | None] = (
            policies(self._line),
            queues(flow),
            *indicators(self._line)[: layout.indicators],
            dropped(self._line, layout.reasons),
        )
        yield from (row for row in rows if row)

    def _progress_rows(self) -> Group:
        progress = self._progress
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(no_wrap=True)
        row.add_column(ratio=1)
        bar = ProgressBar(
            total=1.0,
            completed=progress.fraction or 0.0,
            pulse=progress.fraction is None,
            animation_time=0.0,  # a still pulse
        )
        row.add_row(Text(progress.label, style="bold"), bar)
        gone = duration(self._line.get("time_s") or 0.0)
        return Group(row, Text(f"{gone} gone, {progress.remaining()}"))
