"""The thinned columns of a run's metrics file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from aclearn.errors import RunFolderError
from services.dashboard.run_series import MOST_POINTS, RunSeries


def _write(run: Path, *lines: object, mode: str = "a") -> None:
    run.mkdir(exist_ok=True)
    with (run / "metrics.jsonl").open(mode) as file:
        file.writelines(
            (text if isinstance(text, str) else json.dumps(text)) + "\n" for text in lines
        )


def _read(series: RunSeries) -> None:
    while series.read_on():
        pass


def test_nested_figures_are_joined_and_unknown_ones_nan(tmp_path: Path) -> None:
    _write(tmp_path, {"time_s": 1}, {"time_s": 2, "wait_share": {"actor": {"emulator": 0.5}}})
    series = RunSeries(tmp_path)
    _read(series)
    assert series.names == ["time_s", "wait_share/actor/emulator"]
    found = series.columns(["time_s", "wait_share/actor/emulator", "nothing"])
    assert list(found) == ["time_s", "wait_share/actor/emulator"]
    np.testing.assert_array_equal(found["time_s"], [1, 2])
    np.testing.assert_array_equal(found["wait_share/actor/emulator"], [np.nan, 0.5])


def test_an_unfinished_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"time_s": 1}\n{"time_')
    series = RunSeries(tmp_path)
    _read(series)
    assert (series.lines, series.damaged) == (1, 0)
    with path.open("a") as file:
        file.write('s": 2}\n')
    _read(series)
    assert (series.lines, series.damaged, series.newest) == (2, 0, {"time_s": 2})


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[1]",
        '{"env_steps": 3}',
        '{"time_s": NaN}',
        '{"time_s": 1, "wait_share": 3}',
        "[" * 100_000,
        "",
        "\x00" * 40,
        '{"time_s": 1, "note": "' + "x" * (1024 * 1024) + '"}',
    ],
)
def test_damaged_and_foreign_lines_are_counted_and_left_out(tmp_path: Path, text: str) -> None:
    _write(tmp_path, {"time_s": 1}, text, {"time_s": 2})
    series = RunSeries(tmp_path)
    _read(series)
    assert (series.lines, series.damaged) == (2, 1)


def test_many_lines_are_thinned_evenly_and_end_with_the_newest(tmp_path: Path) -> None:
    count = 5 * MOST_POINTS + 2
    _write(tmp_path, *({"time_s": i} for i in range(count)))
    series = RunSeries(tmp_path)
    _read(series)
    times = series.columns(["time_s"])["time_s"]
    # a stride of 4 has 1281 points, more than 1024
    np.testing.assert_array_equal(times[:-1], np.arange(0, count, 8))
    assert times[-1] == count - 1
    assert series.lines == count


def test_a_shorter_or_replaced_file_is_read_from_its_start(tmp_path: Path) -> None:
    _write(tmp_path, {"time_s": 1}, {"time_s": 2})
    series = RunSeries(tmp_path)
    _read(series)
    _write(tmp_path, {"time_s": 7}, mode="w")
    _read(series)
    assert (series.lines, series.newest) == (1, {"time_s": 7})
    new = tmp_path / "new"
    _write(new, {"time_s": 8}, {"time_s": 9}, {"time_s": 10})
    shutil.move(new / "metrics.jsonl", tmp_path / "metrics.jsonl")
    _read(series)
    np.testing.assert_array_equal(series.columns(["time_s"])["time_s"], [8, 9, 10])


def test_a_stored_series_continues_where_it_stood(tmp_path: Path) -> None:
    run, stored = tmp_path / "run", tmp_path / "run.npz"
    _write(run, *({"time_s": i, "entropy": i / 2} for i in range(MOST_POINTS + 3)), "foreign")
    before = RunSeries(run)
    _read(before)
    before.save(stored)
    _write(run, {"time_s": 9999})
    after, fresh = RunSeries(run), RunSeries(run)
    assert after.load(stored)
    _read(after)
    _read(fresh)
    assert (after.lines, after.damaged, after.newest) == (fresh.lines, 1, {"time_s": 9999})
    for name in ("time_s", "entropy"):
        np.testing.assert_array_equal(after.columns([name])[name], fresh.columns([name])[name])


@pytest.mark.parametrize("damage", ["missing", "cut", "text", "another run"])
def test_an_unusable_stored_series_is_not_loaded(tmp_path: Path, damage: str) -> None:
    run, stored = tmp_path / "run", tmp_path / "run.npz"
    _write(run, {"time_s": 1})
    series = RunSeries(tmp_path / "other" if damage == "another run" else run)
    if damage == "another run":
        _write(tmp_path / "other", {"time_s": 5})
    _read(series)
    series.save(stored)
    if damage == "missing":
        stored.unlink()
    elif damage == "cut":
        stored.write_bytes(stored.read_bytes()[:-30])
    elif damage == "text":
        stored.write_text("no npz")
    fresh = RunSeries(run)
    assert not fresh.load(stored)
    _read(fresh)
    assert fresh.newest == {"time_s": 1}


def test_a_line_longer_than_a_read_does_not_stop_the_reading(tmp_path: Path) -> None:
    _write(tmp_path, {"time_s": 1}, "x" * (9 * 1024 * 1024), {"time_s": 2})
    series = RunSeries(tmp_path)
    _read(series)
    assert series.newest == {"time_s": 2}
    assert series.damaged


def test_a_deleted_run_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"gone/metrics\.jsonl cannot be read"):
        RunSeries(tmp_path / "gone").read_on()
