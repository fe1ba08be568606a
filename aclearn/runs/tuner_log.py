"""The tuner on disk: its decisions in the run's folder, the best counts beside the runs.

Imported by name: `aclearn.runs` brings what reads checkpoints, which actors do not need.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aclearn.errors import RunFolderError
from aclearn.runs.metrics_file import MetricsWriter, read_metrics

TUNER_FILE = "tuner.jsonl"


def open_tuner_log(run_dir: Path) -> MetricsWriter:
    """The run's `tuner.jsonl`, new or to go on with; a torn last line is cut off.

    Raises:
        RunFolderError: it cannot be opened or mended.
    """
    return MetricsWriter(run_dir / TUNER_FILE)


def read_tuner_log(run_dir: Path) -> list[dict[str, Any]]:
    """Every whole line of a run's `tuner.jsonl`.

    Raises:
        RunFolderError: there is no such run, or its tuner was off.
    """
    if not run_dir.is_dir():
        raise RunFolderError(f"there is no run folder {run_dir}; expected runs/<name>")
    path = run_dir / TUNER_FILE
    if not path.exists():
        raise RunFolderError(
            f"there is no {path}: the tuner of this run was off; start one with tuner.enabled=true"
        )
    return read_metrics(path)
