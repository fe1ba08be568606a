"""Groups of runs as a table: the last return, and the way to the target. Imports rich."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aclearn.errors import ConfigError
from aclearn.metrics.formatting import amount, score
from aclearn.metrics.seed_statistics import estimate, quartiles
from aclearn.views.curve import Curve, Points
from aclearn.views.live_console import console_of
from aclearn.views.run_groups import Group

#: Endings of the files that `write_comparison` knows.
FORMATS: Final = (".csv", ".json")
_NOT_KNOWN: Final = "n/a"


class Spread(NamedTuple):
    """A median between its quartiles; None where a run's value decides that is not known."""

    quarter: float | None
    median: float | None
    three_quarters: float | None


class Level(NamedTuple):
    """The last returns of the runs; all are None where no run has one.

    Attributes:
        statistic: "interquartile mean", "mean", or "value" of a single run.
        low: with `high` the 95 % interval of the statistic; None of a single run.
    """

    statistic: str | None
    value: float | None
    low: float | None
    high: float | None
    quarter: float | None
    median: float | None
    three_quarters: float | None


@dataclass(frozen=True)
class Comparison:
    """A row of the table: one group of runs.

    Attributes:
        without_return: number of runs that have no mean return yet.
        last_return: of the newest 100 episodes of training.
        evaluator: of the newest evaluation.
        reached: number of runs that have reached the target.
        steps_to_target: agent steps. A run that has not reached the target counts as later than all
            others; so in `seconds_to_target`.
    """

    group: str
    runs: int
    seeds: str
    without_return: int
    last_return: Level
    evaluator: Level
    target: float | None
    reached: int
    steps_to_target: Spread
    seconds_to_target: Spread


def compare_group(group: Group) -> Comparison:
    """The row of a group."""
    curves = group.curves
    reached = [curve.reached for curve in curves if curve.reached is not None]
    never = [math.inf] * (len(curves) - len(reached))
    return Comparison(
        group=group.label,
        runs=len(curves),
        seeds=_seeds(curves),
        without_return=sum(not curve.training.returns for curve in curves),
        last_return=_level([curve.training for curve in curves]),
        evaluator=_level([curve.evaluator for curve in curves]),
        target=curves[0].target,
        reached=len(reached),
        steps_to_target=_spread([each.env_steps for each in reached] + never),
        seconds_to_target=_spread([each.time_s for each in reached] + never),
    )


def _level(runs: Sequence[Points]) -> Level:
    last = [points.returns[-1] for points in runs if points.returns]
    if not last:
        return Level(*[None] * 7)
    found = estimate(last)
    low, high = (None if end is None else float(end) for end in (found.low, found.high))
    return Level(found.name, float(found.value), low, high, *quartiles(last))


def _spread(values: Sequence[float]) -> Spread:
    found = quartiles(values) if values else [math.inf] * 3
    return Spread(*(value if math.isfinite(value) else None for value in found))


def print_table(rows: Sequence[Comparison]) -> None:
    """Print the rows on standard output."""
    # a file has no width
    console = console_of(sys.stdout) if sys.stdout.isatty() else Console(width=140)
    console.print(_table(rows))


def _table(rows: Sequence[Comparison]) -> Table:
    evaluated = any(row.evaluator.value is not None for row in rows)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("group", overflow="fold")
    table.add_column("seeds", overflow="fold")
    for column in (
        "last return [95 %]",
        "median (quartiles)",
        *(["evaluator [95 %]"] if evaluated else []),
        "target",
        "steps to target",
        "seconds",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        last = _words_of(row.last_return, "no mean yet")
        if row.last_return.value is not None and row.without_return:
            last += f", {row.without_return} without a mean"
        table.add_row(
            Text(row.group),
            row.seeds,
            last,
            _spread_words(row.last_return[-3:]),
            *([_words_of(row.evaluator, "no evaluation yet")] if evaluated else []),
            "none" if row.target is None else f"{row.target:g}: {row.reached} of {row.runs}",
            _spread_words(row.steps_to_target, amount),
            _spread_words(row.seconds_to_target, amount),
        )
    return table


def check_format(out: Path, option: str) -> None:
    """Raise `ConfigError` unless `out` ends in a known format."""
    if out.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"{option}: {out}: expected a name that ends in {' or '.join(FORMATS)} for the table"
        )


def file_of(rows: Sequence[Comparison], out: Path) -> bytes:
    """The rows as CSV or JSON, by the ending of `out`; None is an empty cell, or null."""
    values = [_flat(row) for row in rows]
    if out.suffix.lower() == ".json":
        return f"{json.dumps(values, indent=2, allow_nan=False)}\n".encode()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(values[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(values)
    return text.getvalue().encode()


def _flat(row: Comparison) -> dict[str, object]:
    made: dict[str, object] = {}
    for each in fields(row):
        value = getattr(row, each.name)
        if isinstance(value, Spread | Level):
            made |= {f"{each.name}_{part}": of for part, of in value._asdict().items()}
        else:
            made[each.name] = value
    return made


def _seeds(curves: Sequence[Curve]) -> str:
    """The seeds as "1-5, 9"; those of several runs are counted: "1 (2)"."""
    seeds = sorted(curve.seed for curve in curves if curve.seed is not None)
    parts = list[str]()
    for seed in dict.fromkeys(seeds):
        first, _, last = parts[-1].partition("-") if parts else ("", "", "")
        if (last or first) == str(seed - 1) and seeds.count(seed) == 1:
            parts[-1] = f"{first}-{seed}"
        else:
            parts.append(str(seed) + (f" ({n})" if (n := seeds.count(seed)) > 1 else ""))
    return ", ".join(parts) or "?"


def _words_of(level: Level, missing: str) -> str:
    if level.value is None:
        return f"{_NOT_KNOWN}, {missing}"
    if level.low is None or level.high is None:
        return f"{score(level.value)} (1 run, no interval)"
    short = "IQM" if level.statistic == "interquartile mean" else level.statistic
    return f"{short} {score(level.value)} [{score(level.low)}, {score(level.high)}]"


def _spread_words(spread: Sequence[float | None], shown: Callable[[float], str] = score) -> str:
    """The median and the quartiles: "12 (10 – 15)"."""
    low, middle, high = (_NOT_KNOWN if value is None else shown(value) for value in spread)
    return middle if low == middle == high else f"{middle} ({low} – {high})"
