"""The metrics of a run on disk: one JSON object per line, readable after any crash."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aclearn.errors import RunFolderError
from aclearn.files import open_to_write
from aclearn.runs.atomic_file import write_all
from aclearn.types.bounds import LARGEST_FIGURE

_log = logging.getLogger(__name__)
_TAIL_BYTES: Final = 65536
#: Some hundred lines, enough for a trend.
_FIRST_BYTES: Final = 1024 * 1024
#: Values that are text or null.
TEXTS: Final = ("policy", "checkpoint_error", "metrics_error", "sink_error", "evaluator_test")
#: Values that are mappings of numbers, and their depth.
_LEVELS: Final = {
    **dict.fromkeys(("dropped_steps", "tuner_verdicts", "chain_steps"), 1),
    **dict.fromkeys(("wait_share", "part_seconds"), 2),
}
#: Policy → its part of a line, where a run has several.
_LINES: Final = ("policies",)
#: Names of values that are no numbers; all others are numbers or null.
NO_NUMBERS: Final = frozenset({*TEXTS, *_LEVELS, *_LINES})
#: Above every count of a run.
_MOST_COUNT: Final = 2**63


class MetricsWriter:
    """Appends lines to a `metrics.jsonl`, unbuffered.

    An unfinished line at the end of an existing file is removed first, if it begins as ours do;
    any other text stays, and is left out by readers. Only one process may write.

    Raises:
        RunFolderError: the file cannot be opened or repaired.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._descriptor: int | None = open_to_write(path, os.O_APPEND)
            self.last_line: dict[str, Any] | None = self._repair(self._descriptor)
        except OSError as exc:
            raise RunFolderError(f"{path} cannot be written ({exc.strerror})") from exc

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line; all of it or, on failure, nothing.

        Raises:
            ValueError: a value is NaN, infinite or not JSON; or the writer is closed.
            RunFolderError: the line cannot be written.
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
        """Close the file; closing twice has no effect."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repair(self, descriptor: int) -> dict[str, Any] | None:
        """Remove an unfinished line of ours, end one of another; returns our last whole line."""
        size = os.fstat(descriptor).st_size
        line, end = _last_whole_line(descriptor, size)
        if end < size:
            _log.warning("event=metrics_repaired path=%s torn_bytes=%d", self._path, size - end)
            # a machine that lost its power leaves zeros
            if os.pread(descriptor, 1, end) in (b"{", b"\0"):
                os.ftruncate(descriptor, end)
            else:
                write_all(descriptor, b"\n")
        return line


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a `metrics.jsonl`, also during the run.

    A line that is no JSON object is left out with a warning in the log.

    Raises:
        RunFolderError: the file cannot be read.
    """
    return [line for line in read_metrics_or_none(path) if line is not None]


def read_metrics_or_none(path: Path) -> list[dict[str, Any] | None]:
    """The lines of `read_metrics`, with None in place of each that is no JSON object."""
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    lines = [_parse_line(raw) for raw in content.split(b"\n")[:-1]]
    for number, line in enumerate(lines, start=1):
        if line is None:
            _log.warning("event=metrics_line_skipped path=%s line=%d", path, number)
    return lines


class MetricsTail:
    """Reads new lines of a `metrics.jsonl`, each once.

    An unfinished line waits for its end, or for a monitor that removes it. A line that is no
    metrics line is left out.

    Args:
        first_bytes: number of bytes from its end for the first `read`.
    """

    def __init__(self, path: Path, *, first_bytes: int = _FIRST_BYTES) -> None:
        self._path, self._first_bytes = path, first_bytes
        #: Behind the last whole line.
        self._offset: int | None = None

    def read(self) -> list[dict[str, Any]]:
        """The whole lines since the last call, the oldest first.

        A file that lost whole lines is read from its start: another run has replaced it.

        Raises:
            RunFolderError: the file cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if self._offset is None or size < self._offset:
                    self._offset = max(0, size - self._first_bytes)
                    # probably starts in the middle of a line, whose rest is no JSON
                file.seek(self._offset)
                new = file.read(size - self._offset)
        except OSError as exc:
            raise _unreadable(self._path, exc) from exc
        *whole, torn = new.split(b"\n")
        self._offset += len(new) - len(torn)
        lines = map(_parse_line, whole)
        return [line for line in lines if line is not None and is_metrics_line(line)]


def is_metrics_line(line: Mapping[str, Any]) -> bool:
    """Whether every value has a monitor's type; on a damaged disk it may not."""
    return all(_fits(name, value) for name, value in line.items())


def _fits(name: str, value: Any) -> bool:
    if name in _LEVELS:
        return _holds_numbers(value, _LEVELS[name])
    if name in _LINES:
        lines = value.values() if isinstance(value, dict) else (None,)
        return all(isinstance(each, dict) and is_metrics_line(each) for each in lines)
    if name in TEXTS:
        return value is None or isinstance(value, str)
    return value is None or _holds_numbers(value, 0)


def _holds_numbers(value: Any, levels: int) -> bool:
    if levels:
        return isinstance(value, dict) and all(
            _holds_numbers(inner, levels - 1) for inner in value.values()
        )
    # written so that NaN fails too
    largest = _MOST_COUNT if isinstance(value, int) else LARGEST_FIGURE
    return isinstance(value, int | float) and abs(value) <= largest


def _last_whole_line(descriptor: int, size: int) -> tuple[dict[str, Any] | None, int]:
    """The last line that ends and is a JSON object, and the offset behind the last newline."""
    tail_bytes, last = min(_TAIL_BYTES, size), 0
    while True:
        offset = size - tail_bytes
        tail = os.pread(descriptor, tail_bytes, offset)
        end = tail.rfind(b"\n") + 1
        last = max(last, offset + end if end else 0)
        while end:
            begin = tail.rfind(b"\n", 0, end - 1) + 1
            if begin == 0 and offset > 0:
                break
            line = _parse_line(tail[begin : end - 1])
            if line is not None:
                return line, last
            end = begin
        if offset == 0:
            return None, last
        tail_bytes = min(tail_bytes * 2, size)


def _parse_line(raw: bytes) -> dict[str, Any] | None:
    """One line of a metrics file; None if it is no JSON object."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return None
    return line if isinstance(line, dict) else None


def _unreadable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"there are no metrics to read at {path} ({error.strerror}); expected a run that has "
        "started"
    )
