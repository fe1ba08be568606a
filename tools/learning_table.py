"""Writes the table of learned configurations in docs/results/README.md, from its raw figures.

    python -m tools.learning_table

It is the only place in the documentation with a configuration's agent steps.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "results" / "README.md"
_FIGURES: Final = ROOT / "docs" / "results" / "data" / "learning.csv"
_BEGIN: Final = "<!-- written by tools/learning_table.py from data/learning.csv -->"
_END: Final = "<!-- end -->"


def page() -> str:
    """The page with its table written again."""
    before, rest = PAGE.read_text("utf-8").split(_BEGIN)
    _, after = rest.split(_END)
    return before + "\n".join([_BEGIN, "", *_table(), "", _END]) + after


def _table() -> Iterator[str]:
    titles = ("`aclearn train`", "machine", "return", "reached after, one value a seed")
    yield f"| {' | '.join(titles)} | agent steps, thousands |"
    yield "|---|---|---|---|---|"
    rows = list(csv.DictReader(_FIGURES.read_text("utf-8").splitlines()))
    order = list(dict.fromkeys(_command(row) for row in rows))
    rows.sort(key=lambda row: order.index(_command(row)))  # a stable sort
    for (command, machine), runs in groupby(rows, lambda row: (_command(row), row["machine"])):
        found = list(runs)
        configuration = ROOT / "configs" / f"{command.split()[0]}.yaml"
        bound = yaml.safe_load(configuration.read_text("utf-8"))["run"]["target_return"]
        times = ", ".join(_time(float(row["reached_at_s"])) for row in found)
        steps = ", ".join(f"{1000 * float(row['agent_steps_m']):.0f}" for row in found)
        yield f"| `{command}` | {machine} | {bound:g} | {times} | {steps} |"


def _command(row: dict[str, str]) -> str:
    """The command's arguments without the seed."""
    words = row["command"].removeprefix("aclearn train configs/").split()
    return " ".join(w.removesuffix(".yaml") for w in words if not w.startswith("run.seed="))


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes > 1 else f"{seconds:.0f} s"


def write() -> None:
    """Write the table."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
