"""Log of decisions in a file of the run: numbered, one JSON line each."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aclearn.errors import RunFolderError
from aclearn.runs import MetricsWriter

_LOGGER = logging.getLogger(__name__)


class DecisionLog:
    """Appends decisions; those of the run's earlier parts stay.

    Disk errors are logged, and the run continues.

    Attributes:
        count: decisions in the file; the number of the newest.
        last_line: the newest line; {} before the first.

    Raises:
        RunFolderError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._writer = path, MetricsWriter(path)
        self.last_line: Mapping[str, Any] = self._writer.last_line or {}
        count = self.last_line.get("decision")
        self.count = count if isinstance(count, int) and count > 0 else 0

    def write(self, fields: Mapping[str, Any]) -> None:
        """Append a decision under the next number."""
        self.count += 1
        self.last_line = {"decision": self.count, **fields}
        try:
            self._writer.write(self.last_line)
        except RunFolderError as error:
            _LOGGER.error(
                "event=decision_not_written file=%s reason=%r", self._path.name, str(error)
            )

    def close(self) -> None:
        """Close the file; closing twice has no effect."""
        self._writer.close()
