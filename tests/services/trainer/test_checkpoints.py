"""Checkpoints of a trainer: the newest, the best, failures, and the last one of a run."""

from __future__ import annotations

import errno
import threading
from typing import Any
from unittest.mock import Mock

import numpy as np

from aclearn.config import RunConfig
from aclearn.errors import CheckpointError
from aclearn.runs import RunFolder, load_best, load_newest
from services.trainer.checkpoints import TrainerCheckpoints
from tests.services.trainer.test_trainer import B, T, admit, learn, make_trainer
from tests.support.waiting import DEADLINE_S


def test_the_best_is_of_the_moment_it_was_offered_and_a_later_trainer_knows_it(tmp_path) -> None:
    folder = RunFolder.create(tmp_path, "r", "")
    trainer = make_trainer()
    checkpoints = TrainerCheckpoints(trainer, folder, RunConfig())
    checkpoints.restore_or_start()
    weights = {}
    for number, mean in enumerate([20.0, 30.0, 25.0], start=1):
        learn(trainer, admit(trainer, number))
        checkpoints.offer_best(mean)
        checkpoints.copy_best()
        weights[number] = trainer.learner.tensors()
    assert checkpoints.heartbeat_fields()["gauges"]["best_return"] == 30.0
    checkpoints.write()
    newest, best = load_newest(folder.checkpoints_dir), load_best(folder.checkpoints_dir)
    assert (newest.label, newest.state["judged"]) == (3, None)
    assert (best.label, best.state["judged"]) == (2, {"by": "training", "return_mean": 30.0})
    for name, array in weights[2].items():
        np.testing.assert_array_equal(best.tensors[f"weights/{name}"], array)

    again = TrainerCheckpoints(make_trainer(), folder, RunConfig())
    assert again.restore_or_start()
    assert again.best_return == 30.0
    again.offer_best(29.0)
    again.copy_best()
    again.write()
    assert load_best(folder.checkpoints_dir).path == best.path
    again.offer_best(31.0)  # despite a checkpoint of this moment
    again.copy_best()
    again.write()
    best = load_best(folder.checkpoints_dir)
    assert (best.label, best.state["judged"]["return_mean"]) == (3, 31.0)


def test_a_checkpoint_that_failed_is_tried_again_sooner_and_counted_with_its_reason(
    tmp_path, tools, monkeypatch
) -> None:
    clock, trainer, full, tried = tools.Clock(), make_trainer(), [True], []
    folder = RunFolder.create(tmp_path, "r", "")
    run = RunConfig(checkpoint_every_s=60.0)
    checkpoints = TrainerCheckpoints(trainer, folder, run, clock=clock)
    checkpoints.restore_or_start()
    learn(trainer, admit(trainer, 0))
    begin = clock.now

    def save(*arguments: Any, **options: Any) -> None:
        tried.append(clock.now - begin)
        if full:
            error = OSError(errno.ENOSPC, "No space left on device")
            raise CheckpointError("checkpoint 7 cannot be written") from error

    monkeypatch.setattr("services.trainer.checkpoints.save_checkpoint", save)
    for after_s in (59.9, 60.0, 69.9, 70.0):
        clock.now = begin + after_s
        checkpoints.write_if_due()
    fields = checkpoints.heartbeat_fields()
    assert fields["note"] == f"No space left on device ({folder.checkpoints_dir})"
    names = ("checkpoint_failures", "unsaved_updates", "unsaved_steps")
    assert [fields["counters"][name] for name in names] == [2, 1, T * B]
    full.clear()
    clock.now = begin + 80.0
    checkpoints.write_if_due()
    assert tried == [60.0, 70.0, 80.0]
    fields = checkpoints.heartbeat_fields()
    assert fields["note"] == "" and fields["gauges"]["checkpoint_age_s"] == 0.0
    assert [fields["counters"][name] for name in names] == [2, 0, 0]


def test_an_update_that_hangs_fails_a_checkpoint_within_its_deadline(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("services.trainer.saved_state.SNAPSHOT_WITHIN_S", 0.05)
    trainer = make_trainer()
    checkpoints = TrainerCheckpoints(trainer, RunFolder.create(tmp_path, "r", ""), RunConfig())
    checkpoints.restore_or_start()
    learn(trainer, admit(trainer, 0))
    hangs, ends = threading.Event(), threading.Event()

    def hang() -> None:
        with trainer.learner.turn():
            hangs.set()
            ends.wait(DEADLINE_S)

    worker = threading.Thread(target=hang)
    worker.start()
    assert hangs.wait(DEADLINE_S)
    saver = threading.Thread(
        target=lambda: (
            checkpoints.offer_best(1.0),
            checkpoints.copy_best(),
            checkpoints.write(),
        ),
        daemon=True,
    )
    saver.start()
    saver.join(DEADLINE_S / 2)
    waited = saver.is_alive()
    ends.set()
    worker.join()
    assert not waited
    fields = checkpoints.heartbeat_fields()
    assert fields["note"] == "an update has not ended for 0.05 s"
    assert fields["counters"]["unsaved_updates"] == 1
    assert checkpoints.best_return is None  # it is offered again
    with monkeypatch.context() as patch:
        patch.setattr(trainer.source, "state", Mock(side_effect=TimeoutError("the memory hangs")))
        checkpoints.write()
    assert checkpoints.heartbeat_fields()["note"] == "the memory hangs"
    checkpoints.write()
    assert checkpoints.heartbeat_fields()["counters"]["unsaved_updates"] == 0


def test_a_wanted_checkpoint_is_written_at_once_and_only_once(tmp_path, tools) -> None:
    clock, trainer = tools.Clock(), make_trainer()
    folder = RunFolder.create(tmp_path, "r", "")
    checkpoints = TrainerCheckpoints(trainer, folder, RunConfig(), clock=clock)
    checkpoints.restore_or_start()
    learn(trainer, admit(trainer, 0))
    checkpoints.write_if_due()
    assert load_newest(folder.checkpoints_dir).label == 0
    checkpoints.write_soon()
    checkpoints.write_if_due()
    assert load_newest(folder.checkpoints_dir).label == 1
    learn(trainer, admit(trainer, 1))
    checkpoints.write_if_due()
    assert load_newest(folder.checkpoints_dir).label == 1


def test_steps_that_are_dropped_after_the_last_update_are_in_the_last_checkpoint(tmp_path) -> None:
    trainer = make_trainer()
    folder = RunFolder.create(tmp_path, "r", "")
    checkpoints = TrainerCheckpoints(trainer, folder, RunConfig())
    checkpoints.restore_or_start()
    learn(trainer, admit(trainer, 0))
    checkpoints.write()
    assert trainer.account.admit("actor", 1, T * B, 2 * T * B, {}, T * B, reason="stale") == "stale"
    checkpoints.write()
    saved = load_newest(folder.checkpoints_dir)
    assert (saved.label, saved.state["account"]["env_steps"]) == (1, 2 * T * B)
    checkpoints.write()
    assert load_newest(folder.checkpoints_dir).path == saved.path
