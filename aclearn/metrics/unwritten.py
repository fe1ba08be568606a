"""Reports of files that a run cannot write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aclearn.metrics.formatting import duration

_ERRORS: Final = {"checkpoint_error": "checkpoints", "metrics_error": "metrics"}


class UnwrittenNotes:
    """Finds in metrics lines when writing checkpoints or metrics begins and ceases to fail."""

    def __init__(self) -> None:
        self._failing: set[str] = set()

    def observe(self, line: Mapping[str, Any]) -> list[str]:
        """New notes for the user, given the lines before."""
        failing = {name for name in _ERRORS if line.get(name)}
        begun, over = sorted(failing - self._failing), sorted(self._failing - failing)
        self._failing = failing
        failures = [f"{_ERRORS[n]} cannot be written: {line[n]}; the run continues" for n in begun]
        return failures + [f"{_ERRORS[name]} are written again" for name in over]


def unwritten(line: Mapping[str, Any]) -> list[str]:
    """One text for each kind of file that failed, from the first failure on."""
    texts = []
    if failures := line.get("checkpoint_failures"):
        age = duration(line.get("checkpoint_age_s"))
        error = line.get("checkpoint_error")
        texts.append(f"{failures} checkpoints failed, the newest is {age} old" + _why(error))
    if failures := line.get("metrics_failures"):
        texts.append(f"{failures} metrics lines failed" + _why(line.get("metrics_error")))
    return texts


def _why(error: str | None) -> str:
    return f": {error}" if error else ""
