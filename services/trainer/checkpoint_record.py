"""How a trainer's checkpoints are: how old the newest is, what failed since, what it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aclearn.errors import CheckpointError
from aclearn.metrics.formatting import printable
from aclearn.runs import RunFolder, list_checkpoints, saved_labels, why_not_written

#: Most seconds from a checkpoint that could not be written to the next attempt.
_RETRY_AFTER_S = 10.0
#: Most characters of a reason: it travels with every heartbeat.
_MOST_REASON = 300


@dataclass
class CheckpointRecord:
    """When the newest checkpoint was written, and which failed after it. Pure: time is given.

    Attributes:
        every_s: seconds between two checkpoints.
        tried_at: when the last attempt began, on the clock that is given.
        saved_at: when the newest checkpoint was written.
        updates: updates in the newest checkpoint; -1 before there is one.
        learned_steps: agent steps that it has learned.
        failures: attempts that failed since the trainer's start.
        error: why the last attempt failed; "" where it did not.
    """

    every_s: float
    tried_at: float
    saved_at: float
    updates: int = -1
    learned_steps: int = 0
    failures: int = 0
    error: str = ""

    def due(self, now: float) -> bool:
        """Whether it is time for the next attempt: sooner after one that failed."""
        pause_s = min(self.every_s, _RETRY_AFTER_S) if self.error else self.every_s
        return now - self.tried_at >= pause_s

    def saved(self, now: float, *, updates: int, learned_steps: int) -> None:
        """A checkpoint was written."""
        self.saved_at, self.updates, self.learned_steps = now, updates, learned_steps
        self.error = ""

    def failed(self, error: CheckpointError, dir: Path) -> None:
        """A checkpoint could not be written to `dir`; the newest stays."""
        self.failures += 1
        self.error = printable(why_not_written(error, dir))[:_MOST_REASON]

    def counters(self, *, updates: int, learned_steps: int) -> dict[str, int]:
        """For a heartbeat, of a trainer that has come so far."""
        return {
            "checkpoint_failures": self.failures,
            "unsaved_updates": max(0, updates - self.updates),
            "unsaved_steps": max(0, learned_steps - self.learned_steps),
        }


def lost_learning(
    folder: RunFolder, *, updates: int, unsaved_steps: int, error: str | None
) -> str | None:
    """The disk, the learning that is lost and the checkpoint that stays; None if nothing is lost.

    Args:
        folder: of the run, on the disk that the trainer wrote to.
        updates: of the run.
        unsaved_steps: agent steps that it had learned after its newest checkpoint.
        error: why the last checkpoint could not be written, where that is known.
    """
    labels = saved_labels(folder.checkpoints_dir)
    lost = updates - (labels[0] if labels else 0)
    if lost <= 0:  # the disk knows better than a heartbeat that came before the last checkpoint
        return None
    reason = error or (f"the trainer ended before, see its log in {folder.logs_dir}")
    stays = f"{list_checkpoints(folder.checkpoints_dir)[0].stem} stays" if labels else "none stays"
    free = "free space and " if "No space" in reason else ""
    return (
        f"the last checkpoint could not be written: {reason}; {lost} updates "
        f"({unsaved_steps} agent steps) are lost. Of {folder.checkpoints_dir} {stays}; "
        f"{free}go on with --resume"
    )
