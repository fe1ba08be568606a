"""State of a trainer's checkpoints: age of the newest, failures, learning not saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aclearn.errors import CheckpointError
from aclearn.metrics.formatting import printable
from aclearn.runs import why_not_written

#: Most seconds from a failed checkpoint to the next attempt.
_RETRY_AFTER_S = 10.0
#: Most characters of a reason in a heartbeat.
_MOST_REASON = 300


@dataclass
class CheckpointRecord:
    """The newest checkpoint, and the failures after it. Pure: time is an argument.

    Attributes:
        every_s: seconds between two checkpoints.
        tried_at: start of the last attempt.
        saved_at: time of the newest checkpoint.
        updates: updates in the newest checkpoint; -1 before the first.
        learned_steps: agent steps in the newest checkpoint.
        failures: failed attempts since the trainer's start.
        error: why the last attempt failed; "" if it did not.
    """

    every_s: float
    tried_at: float
    saved_at: float
    updates: int = -1
    learned_steps: int = 0
    failures: int = 0
    error: str = ""

    def due(self, now: float) -> bool:
        """Whether to try now; sooner after a failure."""
        pause_s = min(self.every_s, _RETRY_AFTER_S) if self.error else self.every_s
        return now - self.tried_at >= pause_s

    def saved(self, now: float, *, updates: int, learned_steps: int) -> None:
        """Note a written checkpoint."""
        self.saved_at, self.updates, self.learned_steps = now, updates, learned_steps
        self.error = ""

    def failed(self, error: CheckpointError, dir: Path) -> None:
        """Note that a checkpoint could not be written to `dir`; the newest one stays."""
        self.failures += 1
        self.error = printable(why_not_written(error, dir))[:_MOST_REASON]

    def counters(self, *, updates: int, learned_steps: int) -> dict[str, int]:
        """For a heartbeat; the arguments are the trainer's present counts."""
        return {
            "checkpoint_failures": self.failures,
            "unsaved_updates": max(0, updates - self.updates),
            "unsaved_steps": max(0, learned_steps - self.learned_steps),
        }
