"""The end of a metrics file that another process may be writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aclearn.errors import RunFolderError
from aclearn.runs.metrics_file import parse_line

#: What is read of a long file at first: some hundred lines, enough for a trend.
FIRST_BYTES = 1024 * 1024


class MetricsTail:
    """Gives the lines of a `metrics.jsonl` as they come; reads no byte twice.

    A line that does not end yet waits until it does; one that is no JSON object is left out.

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
        return [line for line in map(parse_line, whole) if line is not None]
