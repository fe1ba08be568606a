"""Views of a run: a live one on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TextIO

from aclearn.metrics import (
    EPISODES_FOR_TARGET,
    SteadyBottleneck,
    dropped_words,
    queue_fills,
    unwritten,
)
from aclearn.metrics.formatting import duration, printable
from aclearn.views.progress import ProgressEstimate

#: Figures that are shown where they are known, and their names in a plain line.
_INDICATORS: Final = {
    "return_slope_per_s": "return_slope_per_s",
    "entropy": "entropy",
    "behaviour_kl": "behaviour_kl",
    "behaviour_kl_estimate": "behaviour_kl_estimate",
    "rho_mean": "rho_mean",
    "effective_sample_share": "effective_sample_share",
    "clipped_rho_share": "clipped_rho_share",
    "clipped_c_share": "clipped_c_share",
    "compressor_kl_mean": "kl_mean",
    "compressor_kl_variance": "kl_variance",
    "compressor_kl_max": "kl_max",
    "reward_gap": "reward_gap",
}


#: Most reasons for dropped steps in a plain line.
_REASONS: Final = 3


class RunConsole(Protocol):
    """A view of a run, used in a `with` block.

    A metrics line is a `MetricsAggregator.line`. A role is a mapping with `role`, `name`, `state`,
    `restarts` and, if a process runs, `pid`.
    """

    def __enter__(self) -> RunConsole:
        """Begin to show."""

    def __exit__(self, *error: object) -> None:
        """End the view and restore the terminal."""

    def update(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> None:
        """Show the newest metrics line and the roles."""

    def note(self, text: str) -> None:
        """Show an event, e.g. that a role was restarted."""


def open_console(
    goal: Mapping[str, float | None],
    *,
    name: str,
    stream: TextIO | None = None,
) -> RunConsole:
    """The live view if the stream is a capable terminal, else plain lines.

    Args:
        goal: see `ProgressEstimate`.
        name: of the run.
        stream: for the output; standard output by default.
    """
    stream = sys.stdout if stream is None else stream
    if stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", ""):
        # rich takes 0.1 s and 10 MB, too much for every role that imports this package
        from aclearn.views.live_console import LiveConsole

        return LiveConsole(goal, name=name, stream=stream)
    return PlainConsole(goal, name=name, stream=stream)


class PlainConsole:
    """One line of `key=value` every `every_s` seconds of the run; events at once."""

    def __init__(
        self,
        goal: Mapping[str, float | None],
        *,
        name: str,
        stream: TextIO,
        every_s: float = 10.0,
    ) -> None:
        self._estimate, self._bottleneck = ProgressEstimate(goal), SteadyBottleneck()
        self._name, self._stream = name, stream
        self._every_s, self._due_s = every_s, 0.0
        self._unwritten: tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]] | None = None

    def __enter__(self) -> PlainConsole:
        self._write(f"run={self._name} started")
        return self

    def __exit__(self, *error: object) -> None:
        if self._unwritten is not None:  # the last line must be shown
            self._write(self._words(*self._unwritten))
            self._unwritten = None

    def update(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> None:
        """Write the line if the interval has passed on the run's clock, `time_s`."""
        time_s = float(line.get("time_s") or 0.0)
        words = self._words(line, roles)  # also if not written: it feeds the estimate
        if time_s < self._due_s:
            self._unwritten = (line, roles)
            return
        self._due_s = time_s + self._every_s
        self._unwritten = None
        self._write(words)

    def note(self, text: str) -> None:
        """Write the event at once."""
        self._write(f"event: {text}")

    def _words(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> str:
        progress = self._estimate.observe(line)
        value = line.get("return_mean_100")
        few = line.get("episodes_in_mean", EPISODES_FOR_TARGET)
        dropped = sum((line.get("dropped_steps") or {}).values())
        reasons = dropped_words(line, _REASONS)
        parts = [
            f"time={duration(line.get('time_s'))}",
            f"return={'-' if value is None else format(value, '.2f')}",
            *([f"mean_of={few}"] if value is not None and few < EPISODES_FOR_TARGET else []),
            f"episodes={line.get('episodes', 0)}",
            f"env_steps={line.get('env_steps', 0)}",
            f"learned_steps={line.get('learned_steps', 0)}",
            f"learned_steps_per_s={line.get('learned_steps_per_s') or 0:.0f}",
            f"updates={line.get('updates', 0)}",
            f"lag={line.get('lag_mean') or 0:.1f}",
            f"dropped_steps={dropped}",
            *([f'dropped="{reasons}"'] if reasons else []),
            *(
                f"{shown}={line[name]:.3g}"
                for name, shown in _INDICATORS.items()
                if line.get(name) is not None
            ),
            *(f"{queue.replace(' ', '_')}={fill:.2f}" for queue, fill in queue_fills(line).items()),
        ]
        parts += [f'unwritten="{text}"' for text in unwritten(line)]
        restarts = sum(int(role.get("restarts") or 0) for role in roles)
        if restarts:
            parts.append(f"restarts={restarts}")
        if progress.fraction is not None:
            parts.append(f'progress="{progress.label}, {progress.remaining()}"')
        parts.append(f'bottleneck="{self._bottleneck.observe(line).sentence}"')
        return " ".join(parts)

    def _write(self, text: str) -> None:
        self._stream.write(printable(text) + "\n")
        self._stream.flush()
