"""The end of a run on this machine: its summary, and learning that no checkpoint has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aclearn.errors import LearningLost, RunFolderError
from aclearn.metrics import nothing_learned
from aclearn.metrics.policies import updates_of_all as updates_of_line
from aclearn.runs import MetricsTail, RunFolder, list_checkpoints, saved_labels
from services.role.metrics import updates_of_all


class RunEnding:
    """The end of this part of a run; files of earlier parts do not count.

    Attributes:
        newest_line: the newest metrics line seen; its file may be on a full disk.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self.path = folder, folder.path
        self._before = {p: _written_at(p) for p in (folder.summary_path, folder.metrics_path)}
        self.newest_line: Mapping[str, Any] = {}

    def summary(self) -> dict[str, Any] | None:
        """The summary; None if this part has written none.

        Raises:
            RunFolderError: it cannot be read.
        """
        return self._folder.read_summary() if self._is_new(self._folder.summary_path) else None

    def checked_summary(self) -> dict[str, Any]:
        """The summary of a run that has learned something, and whose learning is saved.

        Raises:
            LearningLost: all steps were refused, learning is lost, or there is no summary; a note
                says which is lost.
            RunFolderError: it cannot be read.
        """
        summary = self.summary()
        lost = self.lost() or (None if summary is None else nothing_learned(summary))
        if summary is not None and lost is None:
            return summary
        if summary is not None:
            raise LearningLost(str(lost))
        path = self._folder.path
        error = LearningLost(
            f"the run ended and {path / 'summary.json'} was not written; see the log of the "
            f"monitor in {path / 'logs'} and the checkpoints in {path / 'checkpoints'}"
        )
        if lost is not None:
            error.add_note(lost)
        raise error

    def lost(self) -> str | None:
        """The lost learning and the cause, in a sentence; None if none is known.

        Raises:
            RunFolderError: the summary cannot be read.
        """
        lines = [line for line in (self.summary(), self._written_line(), self.newest_line) if line]
        if not lines:
            return None
        last = max(lines, key=lambda line: float(line["time_s"]))
        return lost_learning(
            self._folder,
            updates=updates_of_line(last),
            unsaved_steps=last["unsaved_steps"],
            error=last["checkpoint_error"],
        )

    def _written_line(self) -> Mapping[str, Any] | None:
        path = self._folder.metrics_path
        try:
            lines = MetricsTail(path).read() if self._is_new(path) else []
        except RunFolderError:  # the seen line and the summary must suffice
            return None
        return lines[-1] if lines else None

    def _is_new(self, path: Path) -> bool:
        return _written_at(path) != self._before[path]


def _written_at(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def refuse_lost_learning(folder: RunFolder, last: Mapping[str, Any]) -> None:
    """Raise if learning is lost, where no parent of the process reports it.

    Raises:
        LearningLost: the last checkpoint could not be written.
    """
    counters = last["counters"]
    lost = lost_learning(
        folder,
        updates=updates_of_all(last),
        unsaved_steps=counters["unsaved_steps"],
        error=last["note"],
    )
    if lost is not None:
        raise LearningLost(lost)


def lost_learning(
    folder: RunFolder, *, updates: int, unsaved_steps: int, error: str | None
) -> str | None:
    """The cause, the amount of lost learning and the remaining checkpoint; None if nothing is lost.

    Args:
        unsaved_steps: agent steps learned after the newest checkpoint.
    """
    labels = saved_labels(folder.checkpoints_dir)
    lost = updates - (labels[0] if labels else 0)
    if lost <= 0:  # the heartbeat is older than the last checkpoint
        return None
    reason = error or (f"the trainer ended first, see its log in {folder.logs_dir}")
    stays = f"{list_checkpoints(folder.checkpoints_dir)[0].stem} stays" if labels else "none stays"
    free = "free space and " if "No space" in reason else ""
    return (
        f"the last checkpoint could not be written: {reason}; {lost} updates "
        f"({unsaved_steps} agent steps) are lost. Of {folder.checkpoints_dir} {stays}; "
        f"{free}resume with --resume"
    )
