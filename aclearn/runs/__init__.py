"""What a run leaves on disk: its folder, metrics, summary and checkpoints."""

from aclearn.runs.atomic import check_file, write_atomically, write_file
from aclearn.runs.checkpoint import (
    Checkpoint,
    list_checkpoints,
    load_best,
    load_checkpoint,
    load_newest,
    save_checkpoint,
)
from aclearn.runs.folder import RunFolder
from aclearn.runs.lock import WRITERS, lock_all, lock_role, lock_run
from aclearn.runs.metrics_file import MetricsWriter, read_metrics
from aclearn.runs.metrics_tail import MetricsTail
from aclearn.runs.summary import read_summary, write_summary

__all__ = [
    "WRITERS",
    "Checkpoint",
    "MetricsTail",
    "MetricsWriter",
    "RunFolder",
    "check_file",
    "list_checkpoints",
    "load_best",
    "load_checkpoint",
    "load_newest",
    "lock_all",
    "lock_role",
    "lock_run",
    "read_metrics",
    "read_summary",
    "save_checkpoint",
    "write_atomically",
    "write_file",
    "write_summary",
]
