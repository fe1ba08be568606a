"""The files of JSON lines of a run, for plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aclearn.errors import RunFolderError


def read_lines(run_dir: Path, name: str) -> list[dict[str, Any]]:
    """The whole lines of a file of JSON lines in a run's folder.

    Raises:
        RunFolderError: there is no such folder, or the file cannot be read.
    """
    # imported here: roles that import this package read no run
    from aclearn.runs import read_metrics

    if not run_dir.is_dir():
        raise RunFolderError(f"there is no run folder {run_dir}; expected runs/<name>")
    return read_metrics(run_dir / name)


def unusable_line(path: Path, error: Exception) -> RunFolderError:
    """The error of a file with a line that lacks a value."""
    return RunFolderError(
        f"{path} has a line without a usable {error}; expected a file that aclearn wrote"
    )
