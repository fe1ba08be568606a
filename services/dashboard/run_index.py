"""The runs of a folder with their figures; a thread reads what is new."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aclearn.config import YamlError, parse_yaml
from aclearn.errors import RunFolderError
from aclearn.runs import runs_in
from aclearn.views.run_state import run_state
from services.dashboard.run_series import RunSeries
from services.dashboard.searches import Search, searches_in

_log = logging.getLogger(__name__)
#: Seconds between two looks at the folder.
_EVERY_S: Final = 1.0
#: New lines of a run after which its columns are stored again.
_STORE_AFTER_LINES: Final = 500
_CLOSE_WITHIN_S: Final = 10.0
#: Of a configuration, for the table: column → section and key.
_TAGS: Final = {
    "environment": ("env", "id"),
    "algorithm": ("loss", "kind"),
    "experiment": ("run", "experiment"),
    "seed": ("run", "seed"),
}


@dataclass
class IndexedRun:
    """A run of the folder.

    Attributes:
        id: its path from the folder, such as "tag-sweep/trial-3-seed-1".
        settings: its whole configuration; {} if it cannot be read.
        whole: whether its metrics are read to the end; until then the first indexing goes on.
        settings_at: inode and time of the file of its settings, which a resumed run replaces.
    """

    id: str
    path: Path
    series: RunSeries
    settings: Mapping[str, Any]
    state: str
    whole: bool = False
    stored_lines: int = 0
    settings_at: tuple[int, int] | None = None

    def row(self) -> dict[str, Any]:
        """The run's row in a table of runs; JSON-able."""
        line = self.series.newest
        judged = line.get("judged_return")
        return {
            "id": self.id,
            "state": self.state,
            "return": line.get("return_mean_100") if judged is None else judged,
            "target": line.get("target_return"),
            **{name: line.get(name) for name in ("env_steps", "learned_steps", "time_s")},
            "tags": self._tags(),
            "lines": self.series.lines,
            "damaged": self.series.damaged,
            "whole": self.whole,
        }

    def setting(self, section: str, key: str) -> Any:
        """A value of its configuration; None if it has none."""
        group = self.settings.get(section)
        return group.get(key) if isinstance(group, Mapping) else None

    def _tags(self) -> dict[str, str]:
        found = {}
        for name, place in _TAGS.items():
            value = self.setting(*place)
            if value not in (None, ""):
                found[name] = str(value)[:100]
        return found


def open_run(id: str, path: Path) -> IndexedRun:
    """A run of which no metrics are read yet."""
    run = IndexedRun(id, path, RunSeries(path), {}, run_state(path, {}))
    _read_settings(run)
    return run


class RunIndex:
    """Follows the runs at a path; used in a `with` block.

    Readers see each run as of the thread's last look. A deleted run is gone at the next look.

    Args:
        runs_dir: a folder of runs, or one run's folder.
        store: folder for what was read, so that the next start reads new lines only.
    """

    def __init__(self, runs_dir: Path, store: Path) -> None:
        self.runs_dir = runs_dir.absolute()
        self._store = store
        self._runs = dict[str, IndexedRun]()
        self._searches = list[Search]()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="run index", daemon=True)
        self.revision = 0

    def __enter__(self) -> RunIndex:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(_CLOSE_WITHIN_S)

    def runs(self) -> list[IndexedRun]:
        """The runs in the order of their names."""
        with self._lock:
            return list(self._runs.values())

    def find(self, id: str) -> IndexedRun | None:
        """The run of this id; None if there is none, or it was deleted."""
        with self._lock:
            return self._runs.get(id)

    def searches(self) -> list[Search]:
        """The sweeps and populations of the folder."""
        with self._lock:
            return self._searches

    def look(self) -> bool:
        """Look for new and deleted runs and searches, and read of each run some new lines.

        Returns whether more lines follow.
        """
        found = {self._id(path): path for path in runs_in(self.runs_dir)}
        searches = searches_in(self.runs_dir)
        with self._lock:
            known = self._runs
        runs = {id: known.get(id) or self._open(id, path) for id, path in found.items()}
        with self._lock:
            changed = list(runs) != list(self._runs) or searches != self._searches
            self._runs, self._searches = runs, searches
        more = False
        for run in runs.values():
            if self._stop.is_set():
                return False
            changed |= self._read(run)
            more |= not run.whole
        if changed:
            self.revision += 1
        return more

    def _id(self, path: Path) -> str:
        return path.name if path == self.runs_dir else path.relative_to(self.runs_dir).as_posix()

    def _open(self, id: str, path: Path) -> IndexedRun:
        run = open_run(id, path)
        if run.series.load(self._stored_at(run)):
            run.stored_lines = run.series.lines
        return run

    def _read(self, run: IndexedRun) -> bool:
        """Read some of the new lines of a run; whether anything has changed."""
        before = (run.series.lines, run.series.damaged, run.state, run.whole)
        try:
            run.whole = not run.series.read_on()
        except RunFolderError:  # deleted meanwhile, or it has no metrics yet
            run.whole = True
        run.state = run_state(run.path, run.series.newest)
        is_changed = _read_settings(run)
        if run.whole and run.series.lines - run.stored_lines >= _STORE_AFTER_LINES:
            self._keep(run)
        return is_changed or before != (
            run.series.lines,
            run.series.damaged,
            run.state,
            run.whole,
        )

    def _keep(self, run: IndexedRun) -> None:
        path = self._stored_at(run)
        run.stored_lines = run.series.lines  # a full disk is tried again after as many lines
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            run.series.save(path)
        except OSError as error:
            _log.warning("event=index_not_stored path=%s reason=%s", path, error.strerror)

    def _stored_at(self, run: IndexedRun) -> Path:
        return self._store / f"{hashlib.sha256(os.fsencode(run.path)).hexdigest()[:32]}.npz"

    def _follow(self) -> None:
        more = True
        while not self._stop.wait(0.0 if more else _EVERY_S):
            try:
                more = self.look()
            except OSError as error:  # a folder went away between two calls
                _log.warning("event=look_failed dir=%s reason=%s", self.runs_dir, error.strerror)
                more = False


def _read_settings(run: IndexedRun) -> bool:
    """Read the run's configuration if its file is another one; whether it is."""
    path = run.path / "config.yaml"
    try:
        there = path.stat()
    except OSError:  # deleted meanwhile, or not written yet
        return False
    at = there.st_ino, there.st_mtime_ns
    if at == run.settings_at:
        return False
    run.settings, run.settings_at = _settings(path), at
    return True


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        found = parse_yaml(path.read_text(encoding="utf-8")).value
    except (OSError, ValueError, YamlError):
        return {}
    return found if isinstance(found, Mapping) else {}
