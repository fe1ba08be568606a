"""Groups of runs as a table: the last return, and the way to the target. Imports rich."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, NamedTuple

from rich.table import Table
from rich.text import Text

from aclearn.errors import ConfigError
from aclearn.metrics.formatting import amount, score
from aclearn.metrics.seed_statistics import estimate, quartiles
from aclearn.views.curve import Curve
from aclearn.views.run_groups import Group

#: Endings of the files that `write_comparison` knows.
FORMATS: Final = (".csv", ".json")
_NOT_KNOWN: Final = "n/a"


class Spread(NamedTuple):
    """A median between its quartiles; None where a run's value decides that is not known."""

    quarter: float | None
    median: float | None
    three_quarters: float | None


@dataclass(frozen=True)
class Comparison:
    """A row of the table: one group of runs.

    Attributes:
        without_return: number of runs that have ended no episode yet.
        statistic: of `last_return`: "interquartile mean", "mean", or "value" of a single run; None
            without a return.
        last_return: over runs, of the newest 100 episodes of each. The interval is the 95 % one of
            the statistic.
        returns: the last returns of the runs.
        reached: number of runs that have reached the target.
        steps_to_target: agent steps. A run that has not reached the target counts as later than all
            others; so in `seconds_to_target`.
    """

    group: str
    runs: int
    seeds: str
    without_return: int
    statistic: str | None
    last_return: float | None
    interval: tuple[float, float] | None
    returns: Spread
    target: float | None
    reached: int
    steps_to_target: Spread
    seconds_to_target: Spread


def compare_group(group: Group) -> Comparison:
    """The row of a group."""
    curves = group.curves
    last = [curve.returns[-1] for curve in curves if curve.returns]
    found = estimate(last) if last else None
    interval = None
    if found is not None and found.low is not None and found.high is not None:
        interval = (float(found.low), float(found.high))
    reached = [curve.reached for curve in curves if curve.reached is not None]
    never = [math.inf] * (len(curves) - len(reached))
    return Comparison(
        group=group.label,
        runs=len(curves),
        seeds=_seeds(curves),
        without_return=len(curves) - len(last),
        statistic=None if found is None else found.name,
        last_return=None if found is None else float(found.value),
        interval=interval,
        returns=_spread(last),
        target=curves[0].target,
        reached=len(reached),
        steps_to_target=_spread([each.env_steps for each in reached] + never),
        seconds_to_target=_spread([each.time_s for each in reached] + never),
    )


def _spread(values: Sequence[float]) -> Spread:
    found = quartiles(values) if values else [math.inf] * 3
    return Spread(*(value if math.isfinite(value) else None for value in found))


def table_of(rows: Sequence[Comparison]) -> Table:
    """The rows for a terminal."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("group", overflow="fold")
    table.add_column("seeds", overflow="fold")
    for column in (
        "last return [95 %]",
        "median (quartiles)",
        "target",
        "steps to target",
        "seconds",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            Text(row.group),
            row.seeds,
            _estimate(row),
            _words(row.returns),
            "none" if row.target is None else f"{row.target:g}: {row.reached} of {row.runs}",
            _words(row.steps_to_target, amount),
            _words(row.seconds_to_target, amount),
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
        if isinstance(value, Spread):
            made |= {f"{each.name}_{part}": of for part, of in value._asdict().items()}
        elif each.name == "interval":
            made |= zip(("interval_low", "interval_high"), value or (None, None), strict=True)
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


def _estimate(row: Comparison) -> str:
    if row.last_return is None:
        return f"{_NOT_KNOWN}, no episode yet"
    words = score(row.last_return)
    if row.interval is None:
        words += " (1 run, no interval)"
    else:
        short = "IQM" if row.statistic == "interquartile mean" else row.statistic
        words = f"{short} {words} [{', '.join(map(score, row.interval))}]"
    return words + (f", {row.without_return} without an episode" if row.without_return else "")


def _words(spread: Spread, shown: Callable[[float], str] = score) -> str:
    """The median and the quartiles: "12 (10 – 15)"."""
    low, middle, high = (_NOT_KNOWN if value is None else shown(value) for value in spread)
    return middle if low == middle == high else f"{middle} ({low} – {high})"
