"""A run on disk: its folder, metrics, summary and checkpoints."""

from __future__ import annotations

from aclearn.runs.atomic_file import (
    check_file,
    why_not_written,
    write_atomically,
    write_file,
    write_private,
)
from aclearn.runs.batch_ring import (
    RING_FOLDER,
    BatchRing,
    Record,
    files_of,
    read_file,
    starts_in,
)
from aclearn.runs.checkpoint import (
    Checkpoint,
    Mark,
    list_checkpoints,
    load_best,
    load_checkpoint,
    load_newest,
    remove_checkpoint,
    save_checkpoint,
    saved_labels,
)
from aclearn.runs.chosen_checkpoint import BEST, NEWEST, checkpoint_in, kept_in
from aclearn.runs.found_runs import (
    BEST_FOLDER,
    POPULATION_FILE,
    PUBLICATION_FILE,
    SWEEP_BEST,
    SWEEP_FILE,
    is_population,
    is_publication,
    runs_in,
)
from aclearn.runs.generation import claim_generation
from aclearn.runs.lock import FolderLock, is_locked, lock_all, lock_new, lock_role, lock_run
from aclearn.runs.metrics_columns import metrics_columns
from aclearn.runs.metrics_file import (
    NO_NUMBERS,
    MetricsTail,
    MetricsWriter,
    is_metrics_line,
    read_metrics,
    read_metrics_or_none,
)
from aclearn.runs.numbered_runs import create_next, make_next, next_name, numbered_runs
from aclearn.runs.run_folder import ACTIONS_FILE, STRATEGIES_FILE, TUNER_FILE, RunFolder
from aclearn.runs.summary import read_summary, write_summary

__all__ = [
    "ACTIONS_FILE",
    "BEST",
    "BEST_FOLDER",
    "NEWEST",
    "NO_NUMBERS",
    "POPULATION_FILE",
    "PUBLICATION_FILE",
    "RING_FOLDER",
    "STRATEGIES_FILE",
    "SWEEP_BEST",
    "SWEEP_FILE",
    "TUNER_FILE",
    "BatchRing",
    "Checkpoint",
    "FolderLock",
    "Mark",
    "MetricsTail",
    "MetricsWriter",
    "Record",
    "RunFolder",
    "check_file",
    "checkpoint_in",
    "claim_generation",
    "create_next",
    "files_of",
    "is_locked",
    "is_metrics_line",
    "is_population",
    "is_publication",
    "kept_in",
    "list_checkpoints",
    "load_best",
    "load_checkpoint",
    "load_newest",
    "lock_all",
    "lock_new",
    "lock_role",
    "lock_run",
    "make_next",
    "metrics_columns",
    "next_name",
    "numbered_runs",
    "read_file",
    "read_metrics",
    "read_metrics_or_none",
    "read_summary",
    "remove_checkpoint",
    "runs_in",
    "save_checkpoint",
    "saved_labels",
    "starts_in",
    "why_not_written",
    "write_atomically",
    "write_file",
    "write_private",
    "write_summary",
]
