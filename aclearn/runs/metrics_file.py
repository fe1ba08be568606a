"""The metrics of a run on disk: one JSON object a line, whole after any crash."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aclearn.errors import RunFolderError
from aclearn.runs.atomic_file import write_all

_log = logging.getLogger(__name__)
_TAIL_BYTES: Final = 65536


class MetricsWriter:
    """Appends lines to a `metrics.jsonl`; each is handed to the kernel at once.

    What a killed process left unfinished at the end of the file is cut off first. One writer a
    file: the run folder's lock sees to that.
    """

    def __init__(self, path: Path) -> None:
        """Open `path`, a new file or one to go on with.

        Raises:
            RunFolderError: the file cannot be opened or mended.
        """
        self._path = path
        try:
            self._descriptor: int | None = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644
            )
            self.last_line: dict[str, Any] | None = self._repair(self._descriptor)
        except OSError as exc:
            raise RunFolderError(f"{path} cannot be written ({exc.strerror})") from exc

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line; all of it or, on failure, nothing.

        Raises:
            ValueError: a value is NaN, infinite or no JSON; or the writer is closed.
            RunFolderError: the disk refuses.
        """
        if self._descriptor is None:
            raise ValueError(f"{self._path} is closed")
        try:
            text = json.dumps(line, allow_nan=False)
        except (TypeError, ValueError) as exc:
            raise ValueError(f"a metrics line must be JSON without NaN ({exc}): {line}") from exc
        size = os.fstat(self._descriptor).st_size
        try:
            write_all(self._descriptor, text.encode() + b"\n")
        except OSError as exc:
            os.ftruncate(self._descriptor, size)
            raise RunFolderError(
                f"{self._path} cannot be continued ({exc.strerror}); the lines before are whole"
            ) from exc
        self.last_line = json.loads(text)

    def close(self) -> None:
        """Close the file; closing again changes nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _repair(self, descriptor: int) -> dict[str, Any] | None:
        """Cut what follows the last whole line; that line, or None where there is none."""
        size = os.fstat(descriptor).st_size
        line, end = _last_whole_line(descriptor, size)
        if end < size:
            _log.warning("event=metrics_repaired path=%s cut_bytes=%d", self._path, size - end)
            os.ftruncate(descriptor, end)
        return line


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a `metrics.jsonl`, also of a run that is going on.

    A line that is no JSON object is left out with a warning in the log.

    Raises:
        RunFolderError: the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise RunFolderError(
            f"there are no metrics to read at {path} ({exc.strerror}); expected a run that "
            "has started"
        ) from exc
    lines = []
    for number, raw in enumerate(content.split(b"\n")[:-1], start=1):
        line = parse_line(raw)
        if line is None:
            _log.warning("event=metrics_line_skipped path=%s line=%d", path, number)
        else:
            lines.append(line)
    return lines


def _last_whole_line(descriptor: int, size: int) -> tuple[dict[str, Any] | None, int]:
    """The last line that ends and is a JSON object, and the offset behind it."""
    tail_bytes = min(_TAIL_BYTES, size)
    while True:
        offset = size - tail_bytes
        tail = os.pread(descriptor, tail_bytes, offset)
        end = tail.rfind(b"\n") + 1
        while end:
            begin = tail.rfind(b"\n", 0, end - 1) + 1
            if begin == 0 and offset > 0:
                break
            line = parse_line(tail[begin : end - 1])
            if line is not None:
                return line, offset + end
            end = begin
        if offset == 0:
            return None, 0
        tail_bytes = min(tail_bytes * 2, size)


def parse_line(raw: bytes) -> dict[str, Any] | None:
    """One line of a metrics file; None when it is no JSON object."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):  # no JSON, or nested without end
        return None
    return line if isinstance(line, dict) else None
