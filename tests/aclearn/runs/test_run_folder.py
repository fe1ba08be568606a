"""Run folders: made once, owned by one process, recognised."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import aclearn
from aclearn.errors import RunFolderError, RunFolderTaken
from aclearn.runs import RunFolder, lock_run, save_checkpoint
from tests.support.waiting import run_python

_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(aclearn.__file__).parents[1])}


def test_a_new_folder_holds_the_configuration_and_the_places_of_a_run(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "runs", "pong-1", "run: {seed: 1}\n") as folder:
        assert folder.path == tmp_path / "runs" / "pong-1"
        assert folder.name == "pong-1"
        assert folder.read_config_yaml() == "run: {seed: 1}\n"
        assert folder.config_path.name == "config.yaml"
        assert folder.metrics_path == folder.path / "metrics.jsonl"
        assert folder.summary_path == folder.path / "summary.json"
        assert folder.log_path("actor", "0") == folder.path / "logs" / "actor-0.log"
        for place in (folder.checkpoints_dir, folder.logs_dir):
            assert place.is_dir()
            assert place.parent == folder.path


def test_a_folder_that_is_a_run_already_is_refused_with_the_ways_on(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "pong", "first\n") as folder:
        save_checkpoint(folder.checkpoints_dir, tensors={}, state={}, label=1, keep=1)
    with pytest.raises(RunFolderTaken, match=r"exists already.*--resume.*--overwrite.*run\.name"):
        RunFolder.create(tmp_path, "pong", "second\n")
    assert RunFolder.open(tmp_path / "pong").read_config_yaml() == "first\n"


def test_a_run_is_replaced_if_that_is_wanted_and_nobody_writes_it(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "pong", "first\n") as folder:
        save_checkpoint(folder.checkpoints_dir, tensors={}, state={}, label=1, keep=1)
        ring = folder.path / "flight_recorder" / "default" / "000000" / "00000000.batches"
        ring.parent.mkdir(parents=True)
        for ours in (
            folder.directives_path,
            folder.path / "wandb_id",
            folder.log_path("x", "0"),
            ring,
        ):
            ours.write_text("first")
        (folder.path / "notes.txt").write_text("the user's own")
        with pytest.raises(RunFolderTaken, match="is being written"):
            RunFolder.create(tmp_path, "pong", "second\n", overwrite=True)
    with RunFolder.create(tmp_path, "pong", "second\n", overwrite=True) as folder:
        left = [path for path in folder.path.rglob("*") if path.is_file()]
        assert {path.name for path in left} == {".lock", "config.yaml", "notes.txt"}
        assert folder.read_config_yaml() == "second\n"
    (tmp_path / "mine").mkdir()
    with pytest.raises(RunFolderTaken, match="is not a run folder"):
        RunFolder.create(tmp_path, "mine", "x\n", overwrite=True)


def test_a_run_with_metrics_of_learning_and_no_checkpoint_is_refused_too(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "pong", "first\n") as folder:
        folder.metrics_path.write_text('{"learned_steps": 0}\n{"learned_steps": 320}\n')
    with pytest.raises(RunFolderError, match="pong exists already"):
        RunFolder.create(tmp_path, "pong", "second\n")


def test_failed_starts_leave_one_folder_and_nothing_but_the_files_of_the_last(
    tmp_path: Path,
) -> None:
    for number in range(3):
        with RunFolder.create(tmp_path, "pong", f"{number}\n") as folder:
            assert not folder.metrics_path.exists() and not list(folder.logs_dir.iterdir())
            # a trainer saves its generation before anything is learned
            save_checkpoint(folder.checkpoints_dir, tensors={}, state={}, label=0, keep=1)
            folder.metrics_path.write_text('{"learned_steps": 0}\n')
            folder.log_path("actor", f"{number}").write_text("failed")
            (folder.path / "notes.txt").write_text("the user's own")
    assert [path.name for path in tmp_path.iterdir()] == ["pong"]
    folder = RunFolder.open(tmp_path / "pong")
    assert folder.read_config_yaml() == "2\n"
    assert [path.name for path in folder.logs_dir.iterdir()] == ["actor-2.log"]
    assert (folder.path / "notes.txt").read_text() == "the user's own"


def test_a_run_that_has_just_begun_does_not_make_way(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "pong", "first\n"):
        with pytest.raises(RunFolderError, match=rf"by aclearn train \(process {os.getpid()} on"):
            RunFolder.create(tmp_path, "pong", "second\n")
        assert [path.name for path in tmp_path.iterdir()] == ["pong"]


def test_another_thing_in_the_folders_place_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").write_text("mine")
    for name in ("notes", "file"):
        with pytest.raises(RunFolderError, match="exists already and is not a run folder"):
            RunFolder.create(tmp_path, name, "x\n")
    assert list((tmp_path / "notes").iterdir()) == []
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", ".x", "a b", "a\n", "x" * 101])
def test_a_name_that_cannot_be_a_folder_is_refused_by_the_key(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunFolderError, match=r"run\.name: .* cannot name a run folder"):
        RunFolder.create(tmp_path, name, "x\n")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_runs_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunFolderError, match=r"run\.dir: .*runs is not a folder"):
        RunFolder.create(tmp_path / "runs", "x", "x\n")
    with pytest.raises(RunFolderError, match=r"choose another run\.dir"):
        RunFolder.create(tmp_path / "runs" / "deeper", "x", "x\n")


def test_opening_what_is_missing_or_no_run_says_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    with pytest.raises(RunFolderError, match=r"no run folder at .*nowhere"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match=r"notes is not a run folder: it has no config\.yaml"):
        RunFolder.open(tmp_path / "notes", lock=lock_run)
    assert list((tmp_path / "notes").iterdir()) == []


def test_one_writer_at_a_time_and_readers_at_any_time(tmp_path: Path) -> None:
    owner = RunFolder.create(tmp_path, "pong", "x\n")
    with pytest.raises(RunFolderError, match=rf"by aclearn train \(process {os.getpid()} on"):
        RunFolder.open(owner.path, lock=lock_run)
    assert RunFolder.open(owner.path).read_config_yaml() == "x\n"
    owner.close()
    owner.close()
    RunFolder.open(owner.path, lock=lock_run).close()


def test_resuming_makes_places_that_were_removed(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, "pong", "x\n").close()
    (tmp_path / "pong" / "logs").rmdir()
    with RunFolder.open(tmp_path / "pong", lock=lock_run) as folder:
        assert folder.logs_dir.is_dir()


def test_neither_torch_nor_a_socket_comes_with_runs_and_metrics() -> None:
    script = (
        "import sys, aclearn.runs, aclearn.metrics.aggregator\n"
        "print([name for name in ('torch', 'zmq') if name in sys.modules])\n"
    )
    done = run_python("-c", script, env=_ENVIRONMENT)
    assert (done.stdout, done.stderr) == ("[]\n", "")
