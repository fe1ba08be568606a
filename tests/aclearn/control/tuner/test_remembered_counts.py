"""Remembered worker counts: the workloads that share them, and unusable files."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from aclearn.config import Config
from aclearn.control.tuner.remembered_counts import RememberedCounts
from aclearn.runs import TUNER_FILE
from tests.support.tuned_runs import World, tuned_config, two_is_best


def test_the_best_is_the_next_start_on_this_machine_only_for_this_configuration(tmp_path) -> None:
    first = World(tuned_config(tmp_path), two_is_best)
    first.go_on(60.0)
    first.tuning.close()
    (first.folder.path / TUNER_FILE).unlink()
    again = World(tuned_config(tmp_path), two_is_best)
    assert again.tuning.gauges()["tuner_trainers"] == 2.0
    assert "starts from 2 trainers" in again.notes[0]
    again.tuning.close()
    other = tuned_config(tmp_path, objective="tps")
    assert RememberedCounts(other).read({"trainers": 3}) is None


@pytest.mark.parametrize(
    ("function", "value"),
    [("socket.gethostname", "another-machine"), ("usable_cores", 96)],
)
def test_the_best_is_not_offered_on_another_machine(monkeypatch, function, value) -> None:
    here = _key()
    monkeypatch.setattr(f"aclearn.control.tuner.remembered_counts.{function}", lambda: value)
    assert _key() != here


def _key(**groups: dict) -> Path:
    config = Config.model_validate({"env": {"id": "CartPole-v1"}, **groups})
    return RememberedCounts(config).path


@pytest.mark.parametrize(
    "groups",
    [
        {"env": {"id": "CartPole-v1", "kwargs": {"sutton_barto_reward": True}}},
        {"env": {"id": "CartPole-v1", "frame_stack": 4}},
        {"policy": {"hidden": [512]}},
        {"actors": {"processes": 7}},
        {"actors": {"emulator_threads": 2}},
        {"predictor": {"runtime": "torch"}},
        {"predictor": {"processes": 2}},
        {"predictor": {"max_batch": 1}},
        {"compressor": {"chain": ["int8", "onnx"]}},
        {"trainer": {"amp": "off"}},
        {"trainer": {"unrolls_per_batch": 7}},
        {"tuner": {"objective": "tps"}},
        {"tuner": {"counts": ["trainers"]}},
    ],
)
def test_what_decides_which_counts_are_best_has_an_entry_of_its_own(groups) -> None:
    assert _key(**groups) != _key()


@pytest.mark.parametrize(
    "groups",
    [
        {"predictor": {"workers": 3}, "trainer": {"workers": 2}},  # the answers
        {"run": {"seed": 5}},
        {"optimiser": {"learning_rate": 1e-5}},
        {"tuner": {"every_s": 60.0}},
    ],
)
def test_what_does_not_decide_it_shares_the_entry(groups) -> None:
    assert _key(**groups) == _key()


def test_a_count_that_the_tuner_leaves_alone_is_part_of_the_key() -> None:
    tuner = {"counts": ["trainers"]}
    assert _key(tuner=tuner, predictor={"workers": 2}) != _key(tuner=tuner)
    tuner = {"counts": ["actors"]}
    assert _key(tuner=tuner, actors={"processes": 5}) == _key(tuner=tuner)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"counts": 3}', "expected counts"),
        ('{"counts": {"trainers": "x"}}', "expected counts"),
        ('{"counts": {"trainers": true}}', "expected counts"),
        ('{"counts": {"trainers": 4}}', "expected counts"),
        ("[" * 100_000, "RecursionError"),
    ],
)
def test_a_file_that_cannot_be_used_is_reported_counted_and_replaced(
    tmp_path, caplog, content: str, named: str
) -> None:
    config = tuned_config(tmp_path)
    path = RememberedCounts(config).path
    path.parent.mkdir()
    path.write_text(content)
    with caplog.at_level(logging.WARNING):
        world = World(config, two_is_best)
        assert world.tuning.gauges()["tuner_trainers"] == 1.0  # as configured
        world.go_on(60.0)
        world.tuning.close()
    assert world.tuning.gauges()["tuner_file_warnings"] == 1
    assert str(path) in caplog.text and named in caplog.text
    assert world.memory.read({"trainers": 3}) == {"trainers": 2}


def test_a_disk_that_takes_no_file_is_reported_and_the_run_goes_on(tmp_path) -> None:
    config = tuned_config(tmp_path)
    RememberedCounts(config).path.parent.write_text("no folder")
    world = World(config, two_is_best)
    world.go_on(60.0)
    world.tuning.close()
    assert world.workers == {"t": 2}
    # at the start, when the search ends, and at the end of the run
    assert world.tuning.gauges()["tuner_file_warnings"] == 3


def test_a_run_that_ends_soon_remembers_what_was_measured_twice(tmp_path) -> None:
    world = World(tuned_config(tmp_path), two_is_best)
    while not world.lines() or world.lines()[-1]["verdict"] != "accepted":
        world.go_on(0.25)
    assert world.tuning._tuner.best()[0] == {"trainers": 1}
    world.go_on(10.0)
    world.tuning.close()
    assert world.memory.read({"trainers": 3}) == {"trainers": 2}
