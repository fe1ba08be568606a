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
    assert RememberedCounts(other).read() is None


@pytest.mark.parametrize(
    ("function", "value"),
    [("socket.gethostname", "another-machine"), ("usable_cores", 96)],
)
def test_the_best_is_not_offered_on_another_machine(
    tmp_path, monkeypatch, function: str, value: object
) -> None:
    first = World(tuned_config(tmp_path), two_is_best)
    first.go_on(60.0)
    first.tuning.close()
    (first.folder.path / TUNER_FILE).unlink()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(f"aclearn.control.tuner.remembered_counts.{function}", lambda: value)
        there = World(tuned_config(tmp_path), two_is_best)
        assert there.tuning.gauges()["tuner_trainers"] == 1.0
        assert not there.notes
        there.tuning.close()
    back = World(tuned_config(tmp_path), two_is_best)
    assert back.tuning.gauges()["tuner_trainers"] == 2.0
    back.tuning.close()


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
        ('{"counts": 3}', "AttributeError"),
        ('{"counts": {"trainers": "x"}}', "a count is not a whole number"),
        ('{"counts": {"trainers": true}}', "a count is not a whole number"),
        ("[" * 100_000, "RecursionError"),
    ],
)
def test_a_corrupt_memory_is_reported_counted_left_alone_and_ignored(
    tmp_path, caplog, content: str, named: str
) -> None:
    config = tuned_config(tmp_path)
    path = RememberedCounts(config).path
    path.parent.mkdir()
    path.write_text(content)
    with caplog.at_level(logging.WARNING):
        world = World(config, two_is_best)
        world.go_on(60.0)
        world.tuning.close()
    assert world.workers == {"t": 2}
    assert world.tuning.gauges()["tuner_file_warnings"] >= 2  # at the start, before the writing
    assert str(path) in caplog.text
    assert named in caplog.text and "remove it" in caplog.text
    assert path.read_text() == content


def test_a_run_that_ends_soon_remembers_what_was_measured_twice(tmp_path) -> None:
    world = World(tuned_config(tmp_path), two_is_best)
    while not world.lines() or world.lines()[-1]["verdict"] != "accepted":
        world.go_on(0.25)
    assert world.tuning._tuner.best()[0] == {"trainers": 1}
    world.go_on(10.0)
    world.tuning.close()
    assert world.memory.read() == {"trainers": 2}


def test_a_remembered_count_out_of_bounds_is_not_used(tmp_path) -> None:
    config = tuned_config(tmp_path)
    assert RememberedCounts(config).write({"trainers": 4}, 1.0)
    world = World(config, two_is_best)
    assert world.tuning.gauges()["tuner_trainers"] == 1.0
    world.tuning.close()
