"""A trainer's record of its checkpoints."""

from __future__ import annotations

import errno
from pathlib import Path

from aclearn.errors import CheckpointError
from services.trainer.checkpoint_record import CheckpointRecord

_FULL = OSError(errno.ENOSPC, "No space left on device")


def _refused() -> CheckpointError:
    error = CheckpointError("checkpoint 7 cannot be written")
    error.__cause__ = _FULL
    return error


def test_what_failed_is_tried_again_sooner_and_counted_with_its_reason() -> None:
    record = CheckpointRecord(60.0, tried_at=100.0, saved_at=100.0)
    record.saved(100.0, updates=5, learned_steps=50)
    assert [record.due(now) for now in (159.9, 160.0)] == [False, True]
    for failures in (1, 2):
        record.tried_at = 160.0
        record.failed(_refused(), Path("/r/checkpoints"))
        assert record.failures == failures
    assert record.error == "No space left on device (/r/checkpoints)"
    assert [record.due(now) for now in (169.9, 170.0)] == [False, True]
    assert record.counters(updates=9, learned_steps=90) == {
        "checkpoint_failures": 2,
        "unsaved_updates": 4,
        "unsaved_steps": 40,
    }
    record.saved(170.0, updates=9, learned_steps=90)
    assert record.error == "" and record.failures == 2
    assert record.counters(updates=9, learned_steps=90)["unsaved_updates"] == 0
