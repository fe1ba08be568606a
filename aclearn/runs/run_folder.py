"""The folder of a run: its files and its locks."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aclearn.errors import CheckpointError, RunFolderError, RunFolderTaken
from aclearn.runs.atomic_file import write_atomically
from aclearn.runs.batch_ring import RING_FOLDER
from aclearn.runs.checkpoint import check_parts, look_into, remove_checkpoint, saved_labels
from aclearn.runs.found_runs import is_population, is_publication
from aclearn.runs.lock import FolderLock, lock_run
from aclearn.runs.metrics_file import read_metrics
from aclearn.runs.summary import read_summary

_log = logging.getLogger(__name__)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED_BYTES: Final = 100_000
_SUBFOLDERS: Final = ("checkpoints", "logs")
#: All files of a run, except checkpoints and locks. The configuration is last: it makes the folder
#: a run.
_FILES: Final = (
    "logs/*.log",
    "events.out.tfevents.*",
    ".reserved",
    "monitor_state.json",
    "directives.json",
    "monitor.json",
    "generation.json",
    "wandb_id",
    "mlflow_id",
    "metrics.jsonl",
    "summary.json",
    "tuner.jsonl",
    "strategies.jsonl",
    "actions.jsonl",
    f"{RING_FOLDER}/*/*/*.batches",
    "config.yaml",
)


#: The tuner's decisions, one a line.
TUNER_FILE = "tuner.jsonl"
#: The decisions of strategies, one a line.
STRATEGIES_FILE = "strategies.jsonl"
#: What users have told the run, one a line.
ACTIONS_FILE = "actions.jsonl"


class RunFolder:
    """The folder `<dir>/<name>/` of a run.

    Made by `create` or `open` only; holds its locks until `close`.

    Attributes:
        monitor_state_path: the monitor's state beside the last line of metrics.
        directives_path: rungs and mixes that the monitor has set, and what users have.
        monitor_path: where the running monitor answers.
        generation_path: of the newest trainer; see `claim_generation`.
    """

    def __init__(self, path: Path, lock: FolderLock | None) -> None:
        self.path = path
        self._lock = lock
        self.config_path = path / "config.yaml"
        self.metrics_path = path / "metrics.jsonl"
        self.monitor_state_path = path / "monitor_state.json"
        self.directives_path = path / "directives.json"
        self.monitor_path = path / "monitor.json"
        self.generation_path = path / "generation.json"
        self.summary_path = path / "summary.json"
        self.checkpoints_dir = path / "checkpoints"
        self.logs_dir = path / "logs"
        self._reserved = path / ".reserved"

    @classmethod
    def check_free(cls, dir: str | Path, name: str, *, overwrite: bool = False) -> Path:
        """The path of a new run of this name; nothing is made or locked.

        Raises:
            RunFolderError: as of `create`, if known in advance: the folder exists and cannot be
                replaced, the name cannot be a folder's name, or `dir` cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise RunFolderError(
                f"run.name: {name!r} cannot name a run folder; expected up to 100 letters, digits, "
                "'.', '_' or '-', beginning with a letter or digit"
            )
        path = Path(dir).absolute() / name
        try:
            if path.exists() and not _makes_way(path, overwrite):
                raise RunFolderTaken(_already_there(path))
            nearest = next(parent for parent in path.parents if parent.exists())
        except OSError as exc:
            raise RunFolderError(_cannot_be_made(path, exc.strerror)) from exc
        if not nearest.is_dir():
            raise RunFolderError(f"run.dir: {nearest} is not a folder; choose another run.dir")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise RunFolderError(_cannot_be_made(path, f"{nearest} cannot be written"))
        return path

    @classmethod
    def create(
        cls,
        dir: str | Path,
        name: str,
        config_yaml: str,
        *,
        lock: Callable[[Path], FolderLock] = lock_run,
        overwrite: bool = False,
    ) -> RunFolder:
        """A new, locked run folder with `config_yaml`.

        The folder of a run that learned nothing, or of any run with `overwrite`, is reused: that
        run's files are removed, other files stay.

        Raises:
            RunFolderTaken: the folder exists, or another process writes there.
            RunFolderError: the name cannot be a folder's name, or a disk error.
        """
        path = cls.check_free(dir, name, overwrite=overwrite)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = not path.exists()
            if new:
                path.mkdir()
        except FileExistsError as exc:
            raise RunFolderTaken(_already_there(path)) from exc
        except OSError as exc:
            raise RunFolderError(_cannot_be_made(path, exc.strerror)) from exc
        folder = cls(path, lock(path))
        try:
            if not new:
                if not _makes_way(path, overwrite):  # another command was faster
                    raise RunFolderTaken(_already_there(path))
                _remove_files(path)
            _make_subfolders(path)
            # Last: it makes the folder a run.
            write_atomically(folder.config_path, config_yaml.encode())
        except RunFolderTaken:
            folder.close()
            raise
        except OSError as exc:
            if new:
                shutil.rmtree(path, ignore_errors=True)
            folder.close()
            raise RunFolderError(
                f"the run folder {path} cannot be filled ({exc.strerror}); repair it, or choose "
                "another run.dir"
            ) from exc
        return folder

    @classmethod
    def open(
        cls, path: str | Path, *, lock: Callable[[Path], FolderLock] | None = None
    ) -> RunFolder:
        """The run folder at `path`: to read, or with `lock` to resume the run.

        Raises:
            RunFolderError: there is no run, or another process holds a lock.
        """
        path = Path(path).absolute()  # an environment may change the working directory
        if not path.is_dir():
            raise RunFolderError(f"there is no run folder at {path}; expected the path of a run")
        if is_population(path):
            raise RunFolderError(
                f"{path} is a population, whose members are runs in it; expected one of them, or "
                f"{path.name}/best, or one policy of several of them (aclearn ensemble)"
            )
        if not (path / "config.yaml").is_file():
            raise RunFolderError(
                f"{path} is not a run folder: it has no config.yaml; expected <run.dir>/<run.name>"
            )
        if lock and is_publication(path):
            raise RunFolderError(
                f"{path} is a publication, which has no optimiser and no counts to continue with; "
                "resume the run that it was made of"
            )
        folder = cls(path, lock(path) if lock else None)
        try:
            if lock:
                _make_subfolders(path)
        except OSError as exc:
            folder.close()
            raise RunFolderError(
                f"the run folder {path} cannot be written ({exc.strerror})"
            ) from exc
        return folder

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.resolve().name

    @property
    def has_learned(self) -> bool:
        """Whether the run has learned anything; otherwise `create` reuses the folder."""
        return _has_learned(self.path)

    def check_resumable(self) -> None:
        """Check that the run can be continued; one that has learned nothing begins again.

        A file among the checkpoints that is of none is named in the log.

        Raises:
            CheckpointError: it has learned, and there is no checkpoint; says what was found.
        """
        check_parts(self.checkpoints_dir)
        whole, _, strange = look_into(self.checkpoints_dir)
        if strange:
            names = ", ".join(path.name for path in strange)
            newest = whole[0].stem if whole else "none"
            _log.warning(
                "%s: files of no whole checkpoint stay unread: %s; the newest whole one is %s",
                self.checkpoints_dir, names, newest,
            )  # fmt: skip
        if self.has_learned and not saved_labels(self.checkpoints_dir):
            raise CheckpointError(
                f"the run in {self.path} has learned ({self.metrics_path.name} says so), and "
                f"{self.checkpoints_dir} has no checkpoint; copy its checkpoints there. To start "
                "afresh instead, use --overwrite or another run.name"
            )

    def log_path(self, role: str, identifier: str) -> Path:
        """The log file of one process: `logs/<role>-<identifier>.log`."""
        return self.logs_dir / f"{role}-{identifier}.log"

    def read_config_yaml(self) -> str:
        """The text of the resolved configuration.

        Raises:
            RunFolderError: it cannot be read.
        """
        try:
            return self.config_path.read_text()
        except (OSError, UnicodeDecodeError) as exc:
            raise RunFolderError(f"{self.config_path} cannot be read ({exc})") from exc

    def write_config_yaml(self, text: str) -> None:
        """Replace the resolved configuration, for a resumed run with new bounds.

        Raises:
            RunFolderError: it cannot be written.
        """
        try:
            write_atomically(self.config_path, text.encode())
        except OSError as exc:
            raise RunFolderError(f"{self.config_path} cannot be written ({exc.strerror})") from exc

    def reserve(self) -> None:
        """Reserve disk space for the last metrics line and the summary, until `release`.

        Raises:
            OSError: of the disk; `release` likewise.
        """
        if not self._reserved.exists():
            # no zeros: a compressing file system would reserve no space for them
            write_atomically(self._reserved, os.urandom(_RESERVED_BYTES))

    def release(self) -> None:
        """Free the reserved space."""
        self._reserved.unlink(missing_ok=True)

    def read_summary(self) -> dict[str, Any] | None:
        """The summary of the run, None if it has not ended; see `read_summary`."""
        return read_summary(self.summary_path)

    def close(self) -> None:
        """Release the lock; the folder stays."""
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _make_subfolders(path: Path) -> None:
    """Make the missing folders of a run.

    Raises:
        OSError: of the disk, or one is a symbolic link out of the run.
    """
    for name in _SUBFOLDERS:
        folder = path / name
        if folder.is_symlink() and not folder.resolve().is_relative_to(path.resolve()):
            words = f"{name} is a symbolic link out of it to {folder.readlink()}; make it a folder"
            raise OSError(errno.ELOOP, words)
        folder.mkdir(exist_ok=True)


def _cannot_be_made(path: Path, why: str | None) -> str:
    return f"the run folder {path} cannot be made ({why}); choose another run.dir"


def _already_there(path: Path) -> str:
    if is_publication(path):
        return f"{path} is a publication; choose another run.name or run.dir, or remove it"
    if (path / "config.yaml").is_file():
        return (
            f"the run folder {path} exists already; continue that run with --resume, replace it "
            "with --overwrite, or start a new one under another run.name"
        )
    return (
        f"{path} exists already and is not a run folder; choose another run.name or run.dir, or "
        "remove it"
    )


def _makes_way(path: Path, overwrite: bool) -> bool:
    """Whether the folder is of a run, which may be replaced."""
    is_run = (path / "config.yaml").is_file() and not is_publication(path)
    return is_run and (overwrite or not _has_learned(path))


def _has_learned(path: Path) -> bool:
    """Whether there are traces of learning, or files among the checkpoints that may be of some."""
    checkpoints = path / "checkpoints"
    if any(label > 0 for label in saved_labels(checkpoints)):
        return True
    if checkpoints.is_dir() and look_into(checkpoints).strange:
        return True
    metrics = path / "metrics.jsonl"
    return metrics.exists() and any(line.get("learned_steps") for line in read_metrics(metrics))


def _remove_files(path: Path) -> None:
    """Remove the files of the run; its locks are ours."""
    learned = _has_learned(path)
    if (checkpoints := path / "checkpoints").is_dir():
        whole, torn, strange = look_into(checkpoints)
        if strange:
            raise RunFolderTaken(
                f"{checkpoints} has files that are no checkpoints of aclearn, for instance "
                f"{strange[0].name}; remove them, or start under another run.name"
            )
        for checkpoint in (*whole, *torn):
            remove_checkpoint(checkpoint)
    for pattern in _FILES:
        for file in path.glob(pattern):
            file.unlink()
    _log.warning("%s %s; it is replaced", path, "was a run" if learned else "had learned nothing")
