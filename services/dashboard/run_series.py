"""The figures of a run's metrics file as thinned columns, read once and kept on disk."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import RunFolderError
from aclearn.metrics import Bottleneck, SteadyBottleneck
from aclearn.runs import is_metrics_line, write_atomically

#: Points of a curve at most; a page is seldom wider. Then every second one is dropped.
MOST_POINTS: Final = 1024
#: Names of figures of a run at most; lines of ours have about 150.
_MOST_NAMES: Final = 512
#: A longer line is no metrics line; of it nothing is kept.
_LONGEST_LINE: Final = 1024 * 1024
#: Read at once: little memory, and the index turns to the next run soon.
_READ_BYTES: Final = 4 * 1024 * 1024
#: Raised with each change of the stored form, which is then read anew.
_FORMAT: Final = 2
#: Newest lines of each reading that the bottleneck is found from; more than its memory.
_STEADY_LINES: Final = 100
_PLACE: Final = "time_s"


class _Place(NamedTuple):
    """Where the reading of a file stands."""

    inode: int
    offset: int


class RunSeries:
    """The thinned columns of one run's metrics, which `read_on` continues.

    Every 2^k-th metrics line is a point, so that there are at most `MOST_POINTS`. A column has NaN
    where a line has no such figure.

    Args:
        run_dir: the run's folder.

    Attributes:
        newest: the newest whole metrics line; {} before the first.
        lines: number of whole metrics lines.
        damaged: number of lines that are no metrics lines of ours, and are left out.
        found: the bottleneck as of the newest line; it does not flip with every line.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "metrics.jsonl"
        self._lock = threading.Lock()  # one thread reads on while others take columns
        self._forget()

    def _forget(self) -> None:
        self.newest: dict[str, Any] = {}
        self.lines = self.damaged = 0
        self._steady = SteadyBottleneck()
        self.found = self._steady.observe({})
        self._at = _Place(0, 0)
        self._stride = 1
        self._names = dict[str, int]()
        self._rows = np.full((MOST_POINTS, 0), np.nan)
        self._points = 0

    def read_on(self) -> bool:
        """Read the next 4 MB of new lines at most; returns whether more may follow.

        A file that became shorter, or that another one replaced, is read from its start. An
        unfinished line waits for its end.

        Raises:
            RunFolderError: the file cannot be read; the run may have been deleted.
        """
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._at.inode or found.st_size < self._at.offset:
                    with self._lock:
                        self._forget()
                file.seek(self._at.offset)
                new = file.read(_READ_BYTES)
        except OSError as error:
            raise RunFolderError(
                f"{self._path} cannot be read ({error.strerror}); expected the metrics of a run"
            ) from error
        end = new.rfind(b"\n") + 1
        if len(new) == _READ_BYTES and not end:
            end = len(new)  # far too long for a line of ours
        with self._lock:
            lines = new[:end].removesuffix(b"\n").split(b"\n") if end else []
            for index, raw in enumerate(lines):
                if self._add(raw) and index >= len(lines) - _STEADY_LINES:
                    self.found = self._steady.observe(self.newest)
        self._at = _Place(found.st_ino, self._at.offset + end)
        return end > 0 and self._at.offset < found.st_size

    def columns(self, names: Iterable[str]) -> dict[str, NDArray[np.float64]]:
        """Name → `[points]` for each of the names that the run has; the newest line is the last."""
        with self._lock:
            end = dict[str, float]()
            if self.lines and (self.lines - 1) % self._stride:
                end = dict(_flat(self.newest))
            last = {name: [end.get(name, np.nan)] if end else [] for name in names}
            return {
                name: np.concatenate([self._rows[: self._points, self._names[name]], last[name]])
                for name in last
                if name in self._names
            }

    @property
    def names(self) -> list[str]:
        """Names of all figures; nested ones are joined: `wait_share/actor/emulator`."""
        return sorted(self._names)

    def _add(self, raw: bytes) -> bool:
        """Take a line; whether it is one of ours."""
        line = _metrics_line(raw)
        if line is None:
            self.damaged += 1
            return False
        if self.lines % self._stride == 0:
            if self._points == MOST_POINTS:
                self._thin()
            if self.lines % self._stride == 0:
                self._keep(line)
        self.newest = line
        self.lines += 1
        return True

    def _thin(self) -> None:
        half = MOST_POINTS // 2
        self._rows[:half] = self._rows[::2]
        self._rows[half:] = np.nan
        self._points, self._stride = half, self._stride * 2

    def _keep(self, line: Mapping[str, Any]) -> None:
        flat = dict(_flat(line))
        for name in flat:
            if name not in self._names and len(self._names) < _MOST_NAMES:
                self._names[name] = len(self._names)
        if len(self._names) > self._rows.shape[1]:
            wider = np.full((MOST_POINTS, len(self._names) + 16), np.nan)
            wider[:, : self._rows.shape[1]] = self._rows
            self._rows = wider
        for name, value in flat.items():
            if name in self._names:
                self._rows[self._points, self._names[name]] = value
        self._points += 1

    def save(self, path: Path) -> None:
        """Write the columns to `path` atomically.

        Raises:
            OSError: the file cannot be written.
        """
        about = {
            "format": _FORMAT,
            "run": str(self._path),
            "at": self._at,
            "stride": self._stride,
            "names": list(self._names),
            "newest": self.newest,
            "lines": self.lines,
            "damaged": self.damaged,
            "found": asdict(self.found),
        }
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        rows = self._rows[: self._points, : len(self._names)]
        made = BytesIO()
        np.savez(made, about=text, rows=rows)
        write_atomically(path, made.getvalue())

    def load(self, path: Path) -> bool:
        """Continue what `save` has written; False, and no change, if it is not usable."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                about = json.loads(stored["about"].tobytes())
                rows = np.asarray(stored["rows"], np.float64)
            if about["format"] != _FORMAT or about["run"] != str(self._path):
                return False
            names = {str(name): place for place, name in enumerate(about["names"])}
            counts = [int(about[key]) for key in ("stride", "lines", "damaged")]
            bottleneck = Bottleneck(**about["found"])
            at, newest = _Place(*map(int, about["at"])), dict(about["newest"])
            fits = rows.ndim == 2 and len(rows) <= MOST_POINTS and rows.shape[1] == len(names)
            if not fits or counts[0] < 1 or not is_metrics_line(newest):
                return False
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            EOFError,
            BadZipFile,
        ):  # damaged, or not there
            return False
        self._names, self._at, self.newest, self.found = names, at, newest, bottleneck
        self._stride, self.lines, self.damaged = counts
        self._rows = np.full((MOST_POINTS, len(names)), np.nan)
        self._points = len(rows)
        self._rows[: self._points] = rows
        return True


def _metrics_line(raw: bytes) -> dict[str, Any] | None:
    if len(raw) > _LONGEST_LINE:
        return None
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return None
    if not isinstance(line, dict) or not isinstance(line.get(_PLACE), int | float):
        return None
    return line if is_metrics_line(line) else None


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)
