"""Views of a run: a live one on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Final, Protocol, TextIO

from aclearn.metrics import (
    EPISODES_FOR_TARGET,
    INFO,
    SteadyBottleneck,
    dropped_words,
    refusals,
    unwritten,
)
from aclearn.metrics.formatting import amount, duration, evaluated, printable, score
from aclearn.metrics.names import POLICIES
from aclearn.views.progress import ProgressEstimate

#: Characters of a line of figures at most, of which the last are left out; and of a line of other
#: texts, which go on in the next one.
_WIDEST: Final = 200
_WRAPPED: Final = 120
#: Most reasons for dropped steps in a line.
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
    """The live view if the stream is a capable terminal, else plain lines."""
    stream = sys.stdout if stream is None else stream
    if stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", ""):
        # rich takes 0.1 s and 10 MB, too much for every role that imports this package
        from aclearn.views.live_console import LiveConsole

        return LiveConsole(goal, name=name, stream=stream)
    return PlainConsole(goal, name=name, stream=stream)


class PlainConsole:
    """A line of figures every `every_s` seconds of the run; events, and a new bottleneck, at once.

    No line is longer than 200 characters, unless one word is. `metrics.jsonl` has all figures.

    Args:
        prefix: before each line, for several runs in one stream.
    """

    def __init__(
        self,
        goal: Mapping[str, float | None],
        *,
        name: str,
        stream: TextIO,
        every_s: float = 10.0,
        prefix: str = "",
    ) -> None:
        self._estimate, self._bottleneck = ProgressEstimate(goal), SteadyBottleneck()
        self._name, self._stream, self._prefix = name, stream, prefix
        self._every_s, self._due_s = every_s, 0.0
        self._unwritten: list[str] | None = None
        self._said: tuple[str, ...] = ()

    def __enter__(self) -> PlainConsole:
        self._write(f"run={self._name} started")
        return self

    def __exit__(self, *error: object) -> None:
        if self._unwritten is not None:  # the last line must be shown
            self._write_figures(self._unwritten)
            self._unwritten = None

    def update(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> None:
        """Write the line if the interval has passed on the run's clock, `time_s`."""
        time_s = float(line.get("time_s") or 0.0)
        self._unwritten = [
            self._figures(line, roles),
            *_of_policies(line),
        ]  # also if not written: it feeds the estimate
        found = self._bottleneck.observe(line)
        if time_s < self._due_s:
            return
        self._due_s = time_s + self._every_s
        self._write_figures(self._unwritten)
        self._unwritten = None
        failing = {"unwritten": unwritten(line), "refused": refusals(line)}
        # the numbers in these change with every line
        said = (found.kind, *(t.partition(" ")[2] for texts in failing.values() for t in texts))
        if said != self._said:
            self._said = said
            for kind, texts in failing.items():
                for text in texts:
                    self._write(f"{kind}: {text}")
            self._write(f"bottleneck: {found.sentence}")

    def note(self, text: str) -> None:
        """Write the event at once."""
        self._write(f"event: {text}")

    def _figures(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> str:
        """The most important figures first, as many as fit a line."""
        progress = self._estimate.observe(line)
        value, few = line.get("return_mean_100"), line.get("episodes_in_mean")
        words = dropped_words(line, _REASONS)
        restarts = sum(int(role.get("restarts") or 0) for role in roles)
        is_short = value is not None and few is not None and few < EPISODES_FOR_TARGET
        parts: dict[str, str | None] = {
            "time": duration(line.get("time_s")),
            "return": "-" if value is None else score(value),
            "mean_of": str(few) if is_short else None,
            "evaluated": evaluated(line, "±"),
            "length": _known(line, "episode_length_mean"),
            "env_steps": str(line.get("env_steps", 0)),
            "learned_per_s": amount(line.get("learned_steps_per_s") or 0.0).replace(" ", ""),
            "restarts": str(restarts) if restarts else None,
            "dropped": f'"{words}"' if words else None,
            "progress": None
            if progress.fraction is None
            else f'"{progress.label}, {progress.remaining()}"',
            **{name.removeprefix(INFO): _known(line, name) for name in line if name[:5] == INFO},
            "updates": str(line.get("updates", 0)),
            "episodes": str(line.get("episodes", 0)),
            **{
                name: _known(line, name)
                for name in ("lag_mean", "entropy", "explained_variance", "behaviour_kl_estimate")
            },
        }
        return _joined(parts)

    def _write_figures(self, texts: Sequence[str]) -> None:
        for text in texts:
            self._write(text, _WIDEST)

    def _write(self, text: str, width: int = _WRAPPED) -> None:
        lines = wrap(
            printable(text),
            width,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        self._stream.write("".join(f"{self._prefix}{line}\n" for line in lines))
        self._stream.flush()


def _known(line: Mapping[str, Any], name: str) -> str | None:
    value = line.get(name)
    return None if value is None else f"{value:.3g}"


def _of_policies(line: Mapping[str, Any]) -> list[str]:
    """A text of the figures of each policy, where a run has several."""
    texts = []
    for name, part in (line.get(POLICIES) or {}).items():
        value, few = part.get("return_mean_100"), part.get("episodes_in_mean")
        is_short = value is not None and few is not None and few < EPISODES_FOR_TARGET
        kl = "behaviour_kl" if "behaviour_kl" in part else "behaviour_kl_estimate"
        parts = {
            "policy": name,
            "return": "-" if value is None else score(value),
            "mean_of": str(few) if is_short else None,
            "evaluated": evaluated(part, "±"),
            "length": _known(part, "episode_length_mean"),
            "env_steps": str(part.get("env_steps", 0)),
            **{each: _known(part, each) for each in ("entropy", kl, "policy_loss", "value_loss")},
            "updates": str(part.get("updates", 0)),
            "episodes": str(part.get("episodes", 0)),
        }
        texts.append(_joined(parts))
    return texts


def _joined(parts: Mapping[str, str | None]) -> str:
    """As many of the figures as fit a line."""
    made = ""
    for name, text in parts.items():
        figure = "" if text is None else f" {name}={text}"
        if len(made) + len(figure) > _WIDEST:
            break
        made += figure
    return made.strip()
