"""A trainer's flight recorder, and the repetition of its batches."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from aclearn.config import config_of_keys
from aclearn.envs import read_spec
from aclearn.errors import ArgumentError, CheckpointError, ConfigError
from aclearn.learning import BatchStopped
from aclearn.runs import RING_FOLDER, RunFolder, files_of, save_checkpoint, starts_in
from services.cli import app
from services.trainer import flight_recorder
from services.trainer.build import make_trainer, record_batches
from services.trainer.repeat import Repeated, repeat
from services.trainer.trainer import Trainer
from tests.support.unrolls import quiet_unroll

T, B = 5, 4
KEYS: dict[str, Any] = {
    "run.name": "r",
    "run.flight_recorder": 4,
    "env.id": "CartPole-v1",
    "policy.hidden": [16],
    "actors.unroll_length": T,
    "trainer.device": "cpu",
    "trainer.amp": "off",
}
_PPO = {"loss.kind": "ppo", "trainer.minibatches": 2, "trainer.epochs": 2}


def unroll_of(number: int, **changes: Any):
    """The number-th unroll of actor-1, which is of the rows from 8 on."""
    rng = np.random.default_rng(number)
    return quiet_unroll(
        rng.normal(size=(T + 1, B, 4)).astype(np.float32),
        env_steps_before=number * T * B,
        env_steps_after=(number + 1) * T * B,
        actions=rng.integers(0, 2, (T, B)).astype(np.int32),
        behaviour_log_prob=np.full((T, B), -0.7, np.float32),
        rewards=rng.normal(size=(T, B)).astype(np.float32),
        actor=1,
        first_row=8,
        **changes,
    )


class Recorded:
    """A run without processes whose trainer learns what a test gives it."""

    def __init__(self, folder: Path, generation: int = 0, **keys: Any) -> None:
        config = config_of_keys({**KEYS, "run.dir": str(folder), **keys})
        made = folder / "r"
        self.folder = (
            RunFolder.open(made)
            if made.exists()
            else RunFolder.create(folder, "r", config.to_yaml())
        )
        self.trainer: Trainer = make_trainer(config, read_spec(config.env), generation=generation)
        self.trainer.publish()
        record_batches(self.trainer, config, self.folder)
        self.learned = 0

    def learn(self, count: int = 1, **changes: Any) -> None:
        """Learn batches of an unroll each."""
        for _ in range(count):
            self.learn_this(unroll_of(self.learned, **changes))

    def learn_this(self, unroll: Any) -> None:
        """Learn a batch of the unroll, the next one."""
        trainer = self.trainer
        worker, observation = trainer.learner.own_worker, trainer.learner.architecture.observation
        before, after = unroll.env_steps_before, unroll.env_steps_after
        account = trainer.account
        assert account.admit("actor", self.learned, before, after, {}, T * B) is None
        trainer.learn(worker.assemble([unroll], observation), worker)
        self.learned += 1

    def save(self) -> None:
        """Write a checkpoint."""
        made = self.trainer.snapshot()
        save_checkpoint(
            self.folder.checkpoints_dir,
            tensors=made.tensors,
            state=made.state,
            label=made.updates,
            keep=9,
        )

    def repeat(self, **options: Any) -> Repeated:
        if self.trainer.recorder is not None:
            self.trainer.recorder.close()
        return repeat(self.folder, "default", **options)

    def replay(self, *options: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["replay", str(self.folder.path), *options])
        return done.exit_code, done.output or str(done.exception)


def equal(made: Repeated) -> dict[int, bool]:
    return {each.updates: each.equal for each in made.comparisons}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        _PPO,
        {**_PPO, "policy.memory.kind": "lstm", "policy.memory.size": 4},
        {**_PPO, "loss.normalise_returns": True, "policy.normalise_observations": True},
        {"optimiser.schedule": "linear", "optimiser.schedule_steps": 200},
        {"correctors": "auto", "compressor.chain": ["int8", "onnx"]},
        {"loss.kind": "impact"},
        {"trainer.as_actors": True, "compressor.chain": ["int8", "onnx"]},
    ],
    ids=[
        "v-trace",
        "ppo",
        "memory",
        "normalisers",
        "schedule",
        "split ratios",
        "target network",
        "rounded",
    ],
)
def test_repeated_updates_end_with_the_bits_of_the_run(keys, tmp_path) -> None:
    run = Recorded(tmp_path, **keys)
    state = {} if "policy.memory.kind" not in keys else {
        "state": tuple(np.full((B, 4), 0.1 * n, np.float32) for n in (1, 2))
    }  # fmt: skip
    run.learn(9, **state)
    run.save()
    made = run.repeat()
    each = run.trainer.counters.updates // 9
    assert (made.first, made.batches, made.updates) == (4, 5, 5 * each)
    # the files before the last batches, and the checkpoint
    assert equal(made) == {6 * each: True, 8 * each: True, 9 * each: True}
    assert made.exact and made.doubts == []


def test_a_checkpoint_of_the_middle_of_a_batch_is_compared_there(tmp_path) -> None:
    run = Recorded(tmp_path, **_PPO, **{"loss.normalise_returns": True})
    run.learn(2)
    prepare, count = run.trainer.learner.prepare, run.trainer._count

    def prepared(*arguments):
        batch = prepare(*arguments)
        run.save()  # its targets have changed the value head, and no update has followed
        return batch

    def then_saves(*arguments):
        count(*arguments)
        if run.trainer.counters.updates == 11:
            run.save()

    run.trainer.learner.prepare, run.trainer._count = prepared, then_saves
    run.learn()
    assert equal(run.repeat()) == {8: True, 11: True}


def test_a_stop_within_the_last_batch_is_repeated_up_to_there(tmp_path) -> None:
    run = Recorded(tmp_path, **_PPO)
    run.learn(2)
    worker, looks = run.trainer.learner.own_worker, []

    def check() -> None:
        looks.append(None)
        if len(looks) > 2:  # of the correction and the first update
            raise BatchStopped

    worker.watch(check)
    run.learn()
    assert run.trainer.counters.updates == 2 * 4 + 1
    run.save()
    assert equal(run.repeat())[9]


def test_what_is_set_within_a_batch_holds_from_the_next_one_on_and_is_repeated(tmp_path) -> None:
    run = Recorded(tmp_path, **_PPO)
    run.learn(2)
    count = run.trainer._count

    def then_sets(*arguments):
        count(*arguments)
        if run.trainer.counters.updates == 9:  # the first of four
            run.trainer.set(learning_rate=0.125, entropy_cost=0.5)

    run.trainer._count = then_sets
    run.learn()
    run.save()
    rate = run.trainer.learner.state.optimiser.param_groups[0]["first_lr"]
    run.learn()
    run.save()
    assert rate != 0.125 and run.trainer.learner.settings["learning_rate"] == 0.125
    assert equal(run.repeat()) == {8: True, 12: True, 16: True}


def test_weights_that_are_not_those_of_the_run_are_told(tmp_path) -> None:
    run = Recorded(tmp_path)
    run.learn(3)
    with run.trainer.learner.lock:
        for parameter in run.trainer.learner.state.parameters:
            parameter.data += 1.0
    run.save()
    run.trainer.recorder.close()
    status, output = run.replay()
    assert status == 1 and "after update 3: DIFFERENT, distance" in output


@pytest.mark.parametrize(("off", "status"), [(1e-6, 0), (1.0, 1)])
def test_on_another_processor_bits_may_differ_within_a_tolerance(
    off, status, tmp_path, monkeypatch
) -> None:
    run = Recorded(tmp_path)
    run.learn(3)
    with run.trainer.learner.lock:
        for parameter in run.trainer.learner.state.parameters:
            parameter.data += off
    run.save()
    run.trainer.recorder.close()
    here = flight_recorder.machine_of(run.trainer.learner.device)
    other = {**here, "processor": "another one"}
    monkeypatch.setattr("services.trainer.repeat.machine_of", lambda device: other)
    found, output = run.replay()
    assert found == status
    assert f"bits may differ: processor {here['processor']} there, another one here" in output
    assert ("within the tolerance of 0.1" in output) == (status == 0)


def test_several_workers_are_repeated_in_turn_within_a_tolerance(tmp_path) -> None:
    run = Recorded(tmp_path)  # their number may change within a run
    run.learn(2)
    other = threading.Thread(target=run.learn, args=(2,))
    other.start()
    other.join()
    run.learn()
    made = run.repeat()
    assert not made.exact and made.batches == 5
    [doubt] = made.doubts
    assert "bits may differ from batch 2 on: several workers learned (trainer.workers)" in doubt


def test_a_batch_within_which_a_worker_failed_is_told_and_no_difference_of_ours(tmp_path) -> None:
    run = Recorded(tmp_path, **_PPO)
    run.learn(2)
    learn = run.trainer.learner.learn

    def fails(batch, worker, note, **options):
        def then_fails(report):
            note(report)
            raise MemoryError

        return learn(batch, worker, then_fails, **options)

    run.trainer.learner.learn = fails
    with pytest.raises(MemoryError):
        run.learn()
    run.trainer.learner.learn, run.learned = learn, run.learned + 1
    run.learn(2)
    run.trainer.recorder.close()
    status, output = run.replay("--tolerance", "10")
    assert (
        "bits differ from batch 3 on: 9 updates came before it, and the repetition made" in output
    )
    assert "a worker had failed within an earlier batch" in output and status == 0


def test_a_folder_without_recorded_batches_is_refused_with_the_key(tmp_path) -> None:
    run = Recorded(tmp_path, **{"run.flight_recorder": None})
    run.learn()
    run.save()
    with pytest.raises(ArgumentError, match=r"ran without run\.flight_recorder"):
        run.repeat()
    assert not (run.folder.path / RING_FOLDER).exists()


def test_a_policy_or_generation_that_was_not_recorded_is_refused(tmp_path) -> None:
    run = Recorded(tmp_path, generation=3)
    run.learn()
    with pytest.raises(ArgumentError, match="of generation 2; it has those of 3"):
        run.repeat(generation=2)
    with pytest.raises(ArgumentError, match="a policy 'other'; it has those of default"):
        repeat(run.folder, "other")


def test_checkpoints_that_are_newer_than_the_ring_are_told(tmp_path) -> None:
    run = Recorded(tmp_path)
    run.learn(3)
    run.save()
    run.trainer.recorder.close()
    run.learn(2)  # unrecorded
    run.save()
    status, output = run.replay()
    assert status == 0 and "after update 3: the same bits" in output
    assert "the newest checkpoint, after update 5, is newer than the last recorded batch" in output


def test_a_missing_file_within_the_ring_is_told(tmp_path) -> None:
    run = Recorded(tmp_path)
    run.learn(6)
    [ring] = starts_in(run.folder.path / RING_FOLDER / "default")
    files_of(ring)[1].unlink()
    with pytest.raises(CheckpointError, match="batch 2 is missing before batch 4"):
        run.repeat()


def test_a_resumed_run_has_a_ring_of_its_own_and_the_one_before_stays(tmp_path) -> None:
    first = Recorded(tmp_path)
    first.learn(3)
    first.save()
    first.trainer.recorder.close()
    again = Recorded(tmp_path, generation=1)
    again.trainer.restore(first.trainer.snapshot())
    again.learned = 3
    again.learn(2)
    again.save()
    assert equal(again.repeat()) == {5: True}
    assert equal(again.repeat(generation=0)) == {2: True, 3: True}


def test_a_ring_larger_than_the_disk_is_told_at_the_first_batch(
    tmp_path, monkeypatch, caplog
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(flight_recorder.shutil, "disk_usage", lambda folder: usage(10**6))
    run = Recorded(tmp_path, **{"run.flight_recorder": 10_000})
    run.learn(3)
    assert run.trainer.counters.updates == 3 and run.trainer.recorder.batches == 0
    [told] = [each for each in caplog.messages if "flight_recorder_ended" in each]
    assert "run.flight_recorder: its batches need 0." in told and "room for 0.00" in told
    assert not list(run.folder.path.glob(f"{RING_FOLDER}/default/*"))
    run = Recorded(tmp_path, generation=1, **{"run.flight_recorder": 4})
    run.learn(3)
    assert run.trainer.recorder.batches == 3


@pytest.mark.parametrize(("number", "stays"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_disk_that_fails_ends_the_recorder_and_not_the_training(
    number, stays, tmp_path, monkeypatch, caplog
) -> None:
    run = Recorded(tmp_path)
    run.learn(3)
    gauges = run.trainer.heartbeat_fields()["gauges"]
    assert gauges["recorded_batches"] == 3

    def fails(descriptor, buffers):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("aclearn.runs.batch_ring.os.writev", fails)
    run.learn(2)
    run.save()
    monkeypatch.undo()
    run.learn()  # it does not begin again
    assert run.trainer.counters.updates == 6
    assert run.trainer.heartbeat_fields()["gauges"]["recorded_batches"] == 0
    [told] = [each for each in caplog.messages if "flight_recorder_ended" in each]
    assert os.strerror(number) in told
    if stays:
        made = run.repeat()
        assert made.batches == 3 and equal(made) == {2: True}
    else:  # checkpoints need the room more
        assert not list(run.folder.path.glob(f"{RING_FOLDER}/default/*"))


def test_a_disk_that_fails_at_the_end_costs_nothing_else(tmp_path, monkeypatch, caplog) -> None:
    run = Recorded(tmp_path)
    run.learn(3)

    def fails(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr("aclearn.runs.batch_ring.os.close", fails)
        run.trainer.recorder.close()
    assert [each for each in caplog.messages if "flight_recorder_not_closed" in each]
    run.learn()  # nor does a worker that goes on wait for ever
    assert run.trainer.counters.updates == 4 and run.repeat().batches == 3


def huge(at: list[tuple[int, int]]) -> np.ndarray:
    rewards = np.ones((T, B), np.float32)
    for t, b in at:
        rewards[t, b] = 1e30  # its square is no float32
    return rewards


@pytest.mark.parametrize("keys", [{}, {"loss.kind": "a2c", "trainer.minibatches": 2}])
def test_the_first_bad_batch_is_found_with_its_row_actor_environment_and_range(
    keys, tmp_path
) -> None:
    run = Recorded(tmp_path, **keys)
    run.learn(2)
    good = unroll_of(2)
    seen = {"observation": good.observations["observation"].copy()}
    seen["observation"][2, 3] = (-7.0, 0.0, 0.0, 9.0)
    bad = replace(good, rewards=huge([(2, 3)]), observations=seen)
    run.learn_this(bad)
    assert run.trainer.counters.refused_updates == 1
    run.learn()
    made = run.repeat(until_nonfinite=True)
    assert made.bad is not None and (made.bad.batch, made.batches) == (2, 2)
    [culprit] = made.bad.culprits
    assert (culprit.step, culprit.column, culprit.actor, culprit.row) == (2, 3, 1, 8 + 3)
    assert (culprit.observation["observation"].least, culprit.observation["observation"].most) == (
        -7.0,
        9.0,
    )
    whole = culprit.others["observation"]
    assert whole.least == -7.0 and whole.most == 9.0
    assert culprit.figures["reward"].most == pytest.approx(1e30)
    status, output = run.replay("--until-nonfinite")
    assert status == 0
    assert "the gradient of" in output and "step 2 of column 3: actor-1, environment 11" in output
    # without the option it goes on behind it
    assert run.repeat().refused == 1 and run.repeat().batches == 4


def test_shuffled_minibatches_name_the_steps_that_the_huge_reward_reaches(tmp_path) -> None:
    run = Recorded(tmp_path, **_PPO)
    run.learn()
    run.learn_this(replace(unroll_of(1), rewards=huge([(2, 3)])))
    assert run.trainer.counters.refused_updates > 0
    made = run.repeat(until_nonfinite=True)
    assert made.bad is not None and made.bad.batch == 1
    rows = {(each.step, each.column) for each in made.bad.culprits}
    assert rows and rows <= {(t, 3) for t in range(3)}


def test_of_a_memory_with_a_frozen_correction_the_sequence_is_named(tmp_path) -> None:
    memory = {"policy.memory.kind": "gru", "policy.memory.size": 4}
    run = Recorded(tmp_path, **_PPO, **memory)
    state = (np.zeros((B, 4), np.float32),)
    run.learn_this(replace(unroll_of(0), rewards=huge([(2, 3)]), state=state))
    made = run.repeat(until_nonfinite=True)
    assert made.bad is not None
    [culprit] = made.bad.culprits
    assert (culprit.step, culprit.column, culprit.row) == (None, 3, 11)


def test_every_update_is_a_line_of_json(tmp_path) -> None:
    run = Recorded(tmp_path)
    run.learn(3)
    run.trainer.recorder.close()
    out = tmp_path / "updates.jsonl"
    status, output = run.replay("--out", str(out))
    assert status == 0 and f"wrote {out}: 3 updates" in output
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["batch"] for line in lines] == [0, 1, 2]
    assert all(line["applied"] and line["gradient_norm"] > 0 for line in lines)
    assert run.replay("--out", str(out))[0] != 0  # it exists


def test_a_trainer_of_several_ranks_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.processes: run\.flight_recorder repeats"):
        config_of_keys({**KEYS, "trainer.processes": 2})
