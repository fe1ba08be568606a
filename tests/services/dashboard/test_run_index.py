"""The runs of a folder, as the dashboard follows them."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from aclearn.runs import write_atomically
from services.dashboard import run_index
from services.dashboard.run_index import RunIndex


def _run(path: Path, lines: int, **more: object) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("env: {id: CartPole-v1}\nrun: {seed: 3}\nloss: {kind: ppo}\n")
    with (path / "metrics.jsonl").open("w") as file:
        file.writelines(json.dumps({"time_s": i, **more}) + "\n" for i in range(lines))
    return path


def _look(index: RunIndex) -> None:
    while index.look():
        pass


def test_rows_have_the_newest_figures_and_tags_of_all_runs(tmp_path: Path) -> None:
    _run(tmp_path / "a", 2, return_mean_100=1.5, env_steps=10, target_return=9.0)
    _run(tmp_path / "exp" / "seed-1", 3, return_mean_100=1.0, judged_return=2.0)
    index = RunIndex(tmp_path, tmp_path / "store")
    _look(index)
    first, second = (run.row() for run in index.runs())
    assert first == {
        "id": "a",
        "state": "unfinished",
        "return": 1.5,
        "target": 9.0,
        "env_steps": 10,
        "learned_steps": None,
        "time_s": 1,
        "tags": {"environment": "CartPole-v1", "algorithm": "ppo", "seed": "3"},
        "lines": 2,
        "damaged": 0,
        "whole": True,
    }
    assert (second["id"], second["return"], second["lines"]) == ("exp/seed-1", 2.0, 3)


def test_a_deleted_run_is_gone_and_a_new_one_there_at_the_next_look(tmp_path: Path) -> None:
    gone = _run(tmp_path / "a", 1)
    index = RunIndex(tmp_path, tmp_path / "store")
    _look(index)
    before = index.revision
    shutil.rmtree(gone)
    _run(tmp_path / "b", 1)
    _look(index)
    assert [run.id for run in index.runs()] == ["b"]
    assert index.find("a") is None
    assert index.revision > before


def test_a_configuration_that_a_resumed_run_replaces_is_read_again(tmp_path: Path) -> None:
    run = _run(tmp_path / "a", 1)
    index = RunIndex(tmp_path, tmp_path / "store")
    _look(index)
    before = index.revision
    write_atomically(run / "config.yaml", b"run: {seed: 4}\nloss: {kind: a2c}\n")
    _look(index)
    assert index.runs()[0].row()["tags"] == {"algorithm": "a2c", "seed": "4"}
    assert index.revision > before


def test_a_look_without_news_leaves_the_revision(tmp_path: Path) -> None:
    _run(tmp_path / "a", 1)
    index = RunIndex(tmp_path, tmp_path / "store")
    _look(index)
    before = index.revision
    _look(index)
    assert index.revision == before


def test_a_second_start_reads_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _run(tmp_path / "runs" / "a", 600)
    _look(RunIndex(tmp_path / "runs", tmp_path / "store"))
    with (run / "metrics.jsonl").open("r+") as file:
        file.write("X")  # a line that was read; it would count as damaged
        file.seek(0, 2)
        file.write('{"time_s": 600}\n')
    again = RunIndex(tmp_path / "runs", tmp_path / "store")
    _look(again)
    series = again.runs()[0].series
    assert (series.lines, series.damaged, series.newest) == (601, 0, {"time_s": 600})


def test_a_store_that_cannot_be_written_does_not_stop_the_index(tmp_path: Path) -> None:
    _run(tmp_path / "runs" / "a", 600)
    (tmp_path / "store").write_text("a file")
    index = RunIndex(tmp_path / "runs", tmp_path / "store")
    _look(index)
    assert index.runs()[0].series.lines == 600


def test_the_thread_follows_a_run_and_ends_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_index, "_EVERY_S", 0.01)
    path = _run(tmp_path / "a", 1)
    with RunIndex(tmp_path, tmp_path / "store") as index:
        with (path / "metrics.jsonl").open("a") as file:
            file.write('{"time_s": 77}\n')
        seen = threading.Event()
        for _ in range(500):
            if (run := index.find("a")) and run.series.newest == {"time_s": 77}:
                seen.set()
                break
            seen.wait(0.01)
        assert seen.is_set()
    assert "run index" not in [thread.name for thread in threading.enumerate()]


def test_a_folder_without_runs_is_empty(tmp_path: Path) -> None:
    index = RunIndex(tmp_path / "nothing", tmp_path / "store")
    _look(index)
    assert index.runs() == []
