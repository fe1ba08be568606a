"""Decisions of a run's tuner, strategies and users from its files: tables, curves, marks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from aclearn.metrics.formatting import amount, duration
from aclearn.runs import ACTIONS_FILE, STRATEGIES_FILE, TUNER_FILE
from aclearn.views.decision_marks import marks_of
from aclearn.views.tuner_plot import TunerHistory, tuner_history
from services.dashboard.tail import tail

#: Of each file so much is read from its end, some thousand decisions.
_LAST_BYTES: Final = 1024 * 1024
#: Rows of a table at most.
_ROWS: Final = 50
#: Verdicts of the tuner that change something, or give something up.
_MARKED: Final = ("accepted", "rejected", "restarted", "given up", "adopted")


class Marks(NamedTuple):
    """Texts at times of the run."""

    time_s: list[float]
    texts: list[str]


@dataclass
class Decisions:
    """What tuner, strategies and users have decided.

    Attributes:
        tables: tables with title, columns and rows of texts, the newest row first; JSON-able.
        tuner: the tuner's readings; None without any.
        marks: "tuner" and "strategies" → marks for curves.
        warnings: files that cannot be used.
    """

    tables: list[dict[str, Any]] = field(default_factory=list)
    tuner: TunerHistory | None = None
    marks: dict[str, Marks] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_decisions(run_dir: Path) -> Decisions:
    """The decisions of a run, running or over; a damaged file becomes a warning."""
    found = Decisions()
    files = {
        TUNER_FILE: _read_tuner,
        STRATEGIES_FILE: _read_strategies,
        ACTIONS_FILE: _read_actions,
    }
    for name, read in files.items():
        lines = _lines(run_dir / name)
        try:
            if lines:
                read(lines, found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            found.warnings.append(f"{name} has a line without a usable {error}; it is left out")
    return found


def _read_tuner(lines: Sequence[Mapping[str, Any]], found: Decisions) -> None:
    history = tuner_history(lines)
    marked = [line for line in lines if line["verdict"] in _MARKED]
    marks = Marks([float(line["time_s"]) for line in marked], [_verdict(line) for line in marked])
    rows = [
        [
            duration(line["time_s"]),
            str(line["verdict"]),
            _counts(line["counts"]),
            _counts(line["kept"]),
            "" if line["rate"] is None else f"{amount(line['rate'])}/s",
            str(line["reason"]),
        ]
        for line in lines[-_ROWS:]
    ]
    columns = ["time", "verdict", "measured", "kept", "rate", "reason"]
    found.tables.append(_table("Decisions of the tuner", columns, rows))
    found.tuner, found.marks["tuner"] = history if history.time_s else None, marks


def _read_strategies(lines: Sequence[Mapping[str, Any]], found: Decisions) -> None:
    marks = marks_of(lines)
    rows = [
        [
            duration(line["time_s"]),
            str(line["strategy"]),
            ", ".join(
                f"{key} {line[key]:g}" for key in ("rung", "compressed_share") if key in line
            ),
            _counts(line.get("cause") or {}),
        ]
        for line in lines[-_ROWS:]
    ]
    columns = ["time", "strategy", "decision", "cause"]
    found.tables.append(_table("Decisions of strategies", columns, rows))
    found.marks["strategies"] = Marks(
        [mark.time_s for mark in marks], [mark.text for mark in marks]
    )


def _read_actions(lines: Sequence[Mapping[str, Any]], found: Decisions) -> None:
    known = ("decision", "time_s", "env_steps", "action")
    rows = [
        [
            duration(line["time_s"]),
            str(line["action"]),
            _counts({name: each for name, each in line.items() if name not in known}),
        ]
        for line in lines[-_ROWS:]
    ]
    found.tables.append(_table("Actions of users", ["time", "action", "values"], rows))


def _table(title: str, columns: list[str], rows: list[list[str]]) -> dict[str, Any]:
    return {"title": title, "columns": columns, "rows": rows[::-1]}


def _verdict(line: Mapping[str, Any]) -> str:
    return f"{line['verdict']}: {_counts(line['counts'])}"


def _counts(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {f'{value:.4g}' if isinstance(value, int | float) else value}"
        for name, value in values.items()
    )


def _lines(path: Path) -> list[Mapping[str, Any]]:
    """The lines that are JSON objects with the time of a decision."""
    found = list[Mapping[str, Any]]()
    for text in tail(path, _LAST_BYTES).splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):  # the first may be the end of a line
            continue
        at = line.get("time_s") if isinstance(line, dict) else None
        if isinstance(at, int | float) and math.isfinite(at):
            found.append(line)
    return found
