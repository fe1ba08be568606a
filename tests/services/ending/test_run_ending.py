"""The end of a run on this machine, by its files and its last status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aclearn.errors import LearningLost
from aclearn.runs import RunFolder, save_checkpoint
from services.ending.run_ending import RunEnding, lost_learning


def _line(time_s: float, updates: int) -> dict[str, object]:
    return {
        "time_s": time_s,
        "updates": updates,
        "unsaved_steps": 10 * updates,
        "checkpoint_error": "full",
    }


def test_lost_learning_is_told_from_the_newest_of_what_this_part_wrote_and_said(
    tmp_path: Path,
) -> None:
    with RunFolder.create(tmp_path, "r", "x\n") as folder:
        save_checkpoint(folder.checkpoints_dir, tensors={}, state={}, label=3, keep=1)
        folder.summary_path.write_text(json.dumps(_line(1.0, 7)))
        folder.metrics_path.write_text(json.dumps(_line(1.0, 7)) + "\n")
        ending = RunEnding(folder)
        assert ending.summary() is None and ending.lost() is None  # an earlier part's
        with folder.metrics_path.open("a") as metrics:
            metrics.write(json.dumps(_line(2.0, 5)) + "\n")
        assert "full; 2 updates (50 agent steps) are lost" in str(ending.lost())
        ending.newest_line = _line(3.0, 4)  # a trainer has started again from a checkpoint
        assert "full; 1 updates (40 agent steps) are lost" in str(ending.lost())
        folder.summary_path.unlink()
        folder.summary_path.write_text(json.dumps(_line(4.0, 3)))
        assert ending.summary() == _line(4.0, 3) and ending.lost() is None


@pytest.mark.parametrize(
    ("dropped", "why"),
    [
        ({"bad_unroll": 320, "shutdown": 40}, "bad_unroll 320, shutdown 40"),
        ({"max_env_steps": 320}, None),  # its own bound came first
    ],
)
def test_a_run_whose_steps_were_all_refused_does_not_end_well(
    tmp_path: Path, dropped: dict[str, int], why: str | None
) -> None:
    numbers = {"env_steps": 360, "learned_steps": 0, "dropped_steps": dropped}
    with RunFolder.create(tmp_path, "r", "x\n") as folder:
        save_checkpoint(folder.checkpoints_dir, tensors={}, state={}, label=0, keep=1)
        ending = RunEnding(folder)
        folder.summary_path.write_text(json.dumps(_line(1.0, 0) | numbers))
        if why is None:
            assert ending.checked_summary()["env_steps"] == 360
            return
        with pytest.raises(LearningLost, match=f"none of its 360 agent steps .* for: {why};"):
            ending.checked_summary()


def test_a_run_is_told_what_no_checkpoint_has(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "r", "x\n") as folder:
        words = lost_learning(folder, updates=3, unsaved_steps=30, error="full")
        assert words is not None
        assert "3 updates (30 agent steps) are lost" in words and "none stays;" in words
        save_checkpoint(folder.checkpoints_dir, tensors={}, state={}, label=3, keep=1)
        # the heartbeat about the last checkpoint is missing: the disk has the newer number
        assert lost_learning(folder, updates=3, unsaved_steps=30, error=None) is None
        words = lost_learning(folder, updates=4, unsaved_steps=10, error=None)
        assert words is not None
        assert "the trainer ended first," in words and "000001-3 stays;" in words
