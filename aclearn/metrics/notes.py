"""What metrics lines tell the user: files that cannot be written, and learning at a rate of 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from aclearn.metrics.formatting import duration
from aclearn.metrics.names import POLICIES

_ERRORS: Final = {"checkpoint_error": "checkpoints", "metrics_error": "metrics"}
_SCHEDULE_OVER: Final = (
    "the schedule of the learning rate is over: from here on steps are learned at a rate of 0, "
    "which changes nothing; end the run, or resume it with a larger optimiser.schedule_steps"
)


class LineNotes:
    """Finds in metrics lines what begins: failing writes, their end, and a learning rate of 0."""

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._at_rate_0 = False

    def observe(self, line: Mapping[str, Any]) -> list[str]:
        """New notes for the user, given the lines before."""
        failing = {name for name in _ERRORS if line.get(name)}
        begun, over = sorted(failing - self._failing), sorted(self._failing - failing)
        self._failing = failing
        failures = [f"{_ERRORS[n]} cannot be written: {line[n]}; the run continues" for n in begun]
        parts = (line, *(line.get(POLICIES) or {}).values())
        before = self._at_rate_0
        self._at_rate_0 = any(part.get("learning_rate") == 0.0 for part in parts)
        schedule = [_SCHEDULE_OVER] if self._at_rate_0 and not before else []
        return failures + [f"{_ERRORS[name]} are written again" for name in over] + schedule


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


def refusals(line: Mapping[str, Any]) -> list[str]:
    """One text for each kind of refusal by keys, of all servers, from the first one on."""
    counts = {
        kind: sum(
            math.ceil(count)
            for owner in ("", "monitor_", "predictor_", "compressor_")
            if isinstance(count := line.get(f"{owner}refused_{kind}"), int | float)
            and math.isfinite(count)
        )
        for kind in ("keys", "rights")
    }
    texts = {
        "keys": "connections with unknown or revoked keys were refused",
        "rights": "messages were refused for which the sender's key is not",
    }
    return [f"{count} {texts[kind]}" for kind, count in counts.items() if count]


def _why(error: str | None) -> str:
    return f": {error}" if error else ""
