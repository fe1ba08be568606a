"""A population as one batch of models: its members' folders, and who dies."""

from __future__ import annotations

import errno
import os
from math import nan
from pathlib import Path
from typing import Any

import pytest

from aclearn.config import Config
from aclearn.errors import CheckpointError, ConfigError
from aclearn.launch import StopFlag
from aclearn.population import DEAD
from aclearn.runs import is_metrics_line, load_newest, lock_role, read_metrics, save_checkpoint
from tests.support.populations import RATE

pytest.importorskip("warp")

from services.evaluator.saved_policy import load_policy
from services.population import member
from services.population.batched_engine import BatchedEngine
from services.population.engine import DiskFull, Outcome, Task
from services.population.inheriting import member_config, write_member

STEPS = 64


@pytest.fixture(autouse=True)
def _no_plug_is_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def _config(folder: Path, **groups: Any) -> Config:
    return Config(
        run={"name": "p", "dir": str(folder)},
        env={"id": "CartPole-v1"},
        resident={"envs": 4, "device": "cpu", "threads": 1},
        actors={"unroll_length": 8},
        policy={"architecture": "mlp", "hidden": [8]},
        trainer={"device": "cpu", "amp": "off"},
        evaluator={"episodes": 2},
        **{"population": {"members": 3, "rounds": 2, "round_steps": STEPS}, **groups},
    )


def _tasks(config: Config, folder: Path, round_: int, rates: list[float]) -> list[Task]:
    tasks = []
    for number, rate in enumerate(rates):
        path = folder / f"member-{number}"
        made = member_config(config, path, number, {RATE: rate}, round_ * STEPS)
        write_member(path, made)
        tasks.append(Task(number, round_, path, made))
    return tasks


def _round(engine: BatchedEngine, tasks: list[Task], stop: StopFlag | None = None) -> list[Outcome]:
    return sorted(engine.run(tasks, stop or StopFlag()), key=lambda outcome: outcome.member)


def test_each_member_has_a_run_folder_as_any_run_has(tmp_path: Path) -> None:
    config = _config(tmp_path)
    engine, rates = BatchedEngine(config, StopFlag()), [1e-3, 2e-3, 3e-3]
    first = _round(engine, _tasks(config, tmp_path, 1, rates))
    second = _round(engine, _tasks(config, tmp_path, 2, rates))
    for round_, outcomes in enumerate((first, second), start=1):
        assert [each.status for each in outcomes] == ["trained"] * 3
        for each in outcomes:
            assert each.env_steps >= round_ * STEPS and each.fitness > 0.0
    for number, rate in enumerate(rates):
        folder = tmp_path / f"member-{number}"
        saved = load_policy(folder)
        assert saved.checkpoint.path.stem == second[number].checkpoint
        assert saved.config.optimiser.learning_rate == rate
        lines = list(read_metrics(folder / "metrics.jsonl"))
        assert all(is_metrics_line(line) for line in lines)
        assert lines[-1]["env_steps"] == second[number].env_steps
        assert lines[-1]["learning_rate"] == pytest.approx(rate)
        assert lines[-1]["episodes"] > 0


def test_a_member_that_diverges_dies_alone(tmp_path: Path) -> None:
    config = _config(tmp_path)
    engine, rates = BatchedEngine(config, StopFlag()), [1e-3] * 3
    _round(engine, _tasks(config, tmp_path, 1, rates))
    found = load_newest(tmp_path / "member-1" / "checkpoints")
    assert found is not None
    broken = found.tensors | {"weights/value.weight": found.tensors["weights/value.weight"] * nan}
    save_checkpoint(found.path.parent, tensors=broken, state=found.state, label=1000, keep=2)
    # the trainer gives up after 20 refused updates in a row
    outcomes = _round(engine, _tasks(config, tmp_path, 15, rates))
    assert [each.status for each in outcomes] == ["trained", "diverged", "trained"]
    assert outcomes[1].fitness == DEAD and "not finite" in outcomes[1].detail
    assert [each.env_steps >= 15 * STEPS for each in outcomes] == [True, False, True]


def test_a_member_whose_checkpoints_are_damaged_dies_alone(tmp_path: Path) -> None:
    config = _config(tmp_path)
    engine, rates = BatchedEngine(config, StopFlag()), [1e-3] * 3
    _round(engine, _tasks(config, tmp_path, 1, rates))
    for path in (tmp_path / "member-0" / "checkpoints").glob("*.safetensors"):
        path.write_bytes(b"damaged")
    outcomes = _round(engine, _tasks(config, tmp_path, 2, rates))
    assert [each.status for each in outcomes] == ["failed", "trained", "trained"]
    assert "member-0" in outcomes[0].detail


def test_a_batch_waits_for_the_trainer_of_a_killed_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(tmp_path)
    tasks, orphans = _tasks(config, tmp_path, 1, [1e-3] * 3), []
    orphans.append(lock_role(tasks[1].folder, "trainer", by_hand=False))

    def ends(seconds: float) -> None:
        while orphans:
            orphans.pop().close()

    monkeypatch.setattr(member.time, "sleep", ends)
    outcomes = _round(BatchedEngine(config, StopFlag()), tasks)
    assert [each.status for each in outcomes] == ["trained"] * 3 and orphans == []


def test_a_stopped_round_saves_its_members_and_goes_on_later(tmp_path: Path) -> None:
    config = _config(tmp_path)
    engine, tasks = BatchedEngine(config, StopFlag(), 2), _tasks(config, tmp_path, 1, [1e-3] * 3)
    stop = StopFlag()
    stop.set("SIGTERM")
    assert _round(engine, tasks, stop) == []
    assert load_newest(tasks[0].folder / "checkpoints") is not None
    outcomes = _round(engine, tasks)
    assert [each.status for each in outcomes] == ["trained"] * 3


def test_a_round_that_no_checkpoint_has_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(tmp_path)
    engine, rates = BatchedEngine(config, StopFlag()), [1e-3] * 3
    _round(engine, _tasks(config, tmp_path, 1, rates))
    tasks = _tasks(config, tmp_path, 2, rates)

    def full(*_: Any, **__: Any) -> None:
        raise CheckpointError("it cannot be written") from OSError(
            errno.ENOSPC, os.strerror(errno.ENOSPC)
        )

    with monkeypatch.context() as patch:
        patch.setattr("services.trainer.checkpoints.save_checkpoint", full)
        with pytest.raises(DiskFull):
            _round(engine, tasks)
    assert all(member.read_outcome(each.folder, 2) is None for each in tasks)
    assert all(each.env_steps >= 2 * STEPS for each in _round(engine, tasks))


def test_a_key_that_members_of_a_batch_may_not_differ_in_is_refused(tmp_path: Path) -> None:
    population = {"members": 3, "mutate": {"optimiser.epsilon": [1e-6, 1e-3]}}
    with pytest.raises(ConfigError, match=r"optimiser\.epsilon: members differ in it"):
        BatchedEngine(_config(tmp_path, population=population), StopFlag())
