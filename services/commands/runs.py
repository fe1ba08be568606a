"""`aclearn runs`: the runs in a folder, also those of `--seeds`, the newest first."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aclearn.errors import RunFolderError
from aclearn.metrics.formatting import duration, returns_of_policies
from aclearn.runs import MetricsTail, runs_in
from aclearn.views.run_state import run_state

#: Bytes at the end of a metrics file that hold its last line.
_LAST_BYTES = 65_536


def runs(
    dir: Annotated[Path, typer.Argument(metavar="DIR", help="folder of the run folders")] = Path(
        "runs"
    ),
) -> None:
    """List runs: state, steps, mean return and age, the newest first."""
    if not dir.is_dir():
        raise RunFolderError(f"there is no folder {dir}; expected the folder of run folders")
    found = runs_in(dir)
    if not found:
        raise RunFolderError(f"{dir} has no runs yet; start one with aclearn train")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("run", overflow="fold")  # the only one that a narrow terminal wraps
    for column in ("state", "steps", "return", "age"):
        right = column in ("steps", "return", "age")
        table.add_column(column, justify="right" if right else "left", no_wrap=True)
    for path in sorted(found, key=_written_at, reverse=True):
        line = _last_line(path)
        mean, steps = line.get("return_mean_100"), line.get("env_steps")
        table.add_row(
            Text(path.name if path == dir else str(path.relative_to(dir))),
            Text(run_state(path, line)),
            "-" if steps is None else f"{int(steps):,}",
            returns_of_policies(line) or ("-" if mean is None else f"{mean:.2f}"),
            duration(max(0.0, time.time() - _written_at(path))),
        )
    Console().print(table)


def _last_line(path: Path) -> Mapping[str, Any]:
    try:
        lines = MetricsTail(path / "metrics.jsonl", first_bytes=_LAST_BYTES).read()
    except RunFolderError:  # it has written none
        return {}
    return lines[-1] if lines else {}


def _written_at(path: Path) -> float:
    file = path / "metrics.jsonl"
    return (file if file.exists() else path / "config.yaml").stat().st_mtime
