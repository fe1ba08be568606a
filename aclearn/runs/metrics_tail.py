"""The end of a metrics file that another process may be writing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aclearn.errors import RunFolderError
from aclearn.runs.metrics_file import parse_line

#: What is read of a long file at first: some hundred lines, enough for a trend.
FIRST_BYTES = 1024 * 1024
#: Values that are mappings of numbers, and their levels. An error is text or null, every other
#: value a number or null.
_LEVELS = {"dropped_steps": 1, "tuner_verdicts": 1, "wait_share": 2, "part_seconds": 2}
#: No count and no time of a run comes near it.
_LARGEST = 2.0**63


def is_metrics_line(line: Mapping[str, Any]) -> bool:
    """Whether every value has the type that a monitor writes; on a damaged disk some have not."""
    return all(_fits(name, value) for name, value in line.items())


def _fits(name: str, value: Any) -> bool:
    if name in _LEVELS:
        return _holds_numbers(value, _LEVELS[name])
    if name.endswith("_error"):
        return value is None or isinstance(value, str)
    return value is None or _holds_numbers(value, 0)


def _holds_numbers(value: Any, levels: int) -> bool:
    if levels:
        return isinstance(value, dict) and all(
            _holds_numbers(inner, levels - 1) for inner in value.values()
        )
    # written so that NaN fails too
    return isinstance(value, int | float) and abs(value) < _LARGEST


class MetricsTail:
    """Gives the lines of a `metrics.jsonl` as they come; reads no byte twice.

    A line that does not end yet waits until it does; one that is no metrics line is left out.

    Args:
        path: of the file.
        first_bytes: how much of its end the first `read` looks at.
    """

    def __init__(self, path: Path, *, first_bytes: int = FIRST_BYTES) -> None:
        self._path, self._first_bytes = path, first_bytes
        self._offset: int | None = None
        self._torn = b""

    def read(self) -> list[dict[str, Any]]:
        """The whole lines since the last call, the oldest first.

        A file that has become shorter (a monitor cut off what its predecessor left unfinished, or
        another run took its place) is read anew.

        Raises:
            RunFolderError: the file cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if self._offset is None or size < self._offset:
                    self._offset = max(0, size - self._first_bytes)
                    # begun in the middle of a line, most likely: its rest is no JSON
                    self._torn = b""
                file.seek(self._offset)
                new = file.read(size - self._offset)
        except OSError as error:
            raise RunFolderError(
                f"there are no metrics to read at {self._path} ({error.strerror}); expected a run "
                "that has started"
            ) from error
        self._offset += len(new)
        *whole, self._torn = (self._torn + new).split(b"\n")
        lines = map(parse_line, whole)
        return [line for line in lines if line is not None and is_metrics_line(line)]
