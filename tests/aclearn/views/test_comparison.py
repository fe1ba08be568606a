"""The command compare, and the rows of its table."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from aclearn.errors import AclearnError
from aclearn.metrics.seed_statistics import estimate
from aclearn.views import find_curves
from aclearn.views.comparison import Level, Spread, compare_group
from aclearn.views.run_groups import group_runs
from tests.support.cli import aclearn
from tests.support.seeded_runs import write_run


def _rows(*paths: Path):
    return [compare_group(group) for group in group_runs(find_curves(paths))]


def test_a_row_has_the_last_return_and_the_way_to_the_target(tmp_path: Path) -> None:
    for seed, returns in enumerate(
        [[1, 9, 9], [1, 2, 8], [7, 7, 9], [1, 3, 2], [0, 8, 3]], start=3
    ):
        write_run(tmp_path / f"seed-{seed}", returns, seed=seed, target=7.0, every_s=10.0)
    [row] = _rows(tmp_path)
    expected = estimate([9.0, 8.0, 9.0, 2.0, 3.0])
    assert (row.runs, row.seeds, row.without_return) == (5, "3-7", 0)
    ends = (expected.low, expected.high)
    assert row.last_return == Level("interquartile mean", 20.0 / 3, *ends, 3.0, 8.0, 9.0)
    assert row.evaluator == Level(*[None] * 7)
    # reached after 10, 20, 0, never and 10 seconds of 200 steps each
    assert (row.target, row.reached) == (7.0, 4)
    assert row.seconds_to_target == Spread(10.0, 10.0, 20.0)
    assert row.steps_to_target == Spread(2000.0, 2000.0, 4000.0)


def test_a_target_that_most_have_not_reached_has_no_median(tmp_path: Path) -> None:
    for seed, last in enumerate([9.0, 1.0, 1.0], start=1):
        write_run(tmp_path / f"seed-{seed}", [0.0, last], seed=seed, target=7.0)
    [row] = _rows(tmp_path)
    assert row.reached == 1
    assert row.seconds_to_target == row.steps_to_target == Spread(None, None, None)


def test_the_rows_of_other_environments_and_settings_are_apart(tmp_path: Path) -> None:
    write_run(tmp_path / "a-1", [1.0], seed=1)
    write_run(tmp_path / "a-2", [3.0], seed=1)
    write_run(tmp_path / "a-3", [5.0], seed=4)
    write_run(tmp_path / "b-1", [400.0], seed=9, env="Acrobot-v1")
    write_run(tmp_path / "b-2", [None], seed=2, env="Acrobot-v1")
    first, second = _rows(tmp_path)
    assert (first.group, first.seeds) == ("env.id=CartPole-v1", "1 (2), 4")
    assert first.last_return[:2] == ("mean", 3.0)
    assert (second.group, second.seeds) == ("env.id=Acrobot-v1", "2, 9")
    assert second.last_return[:4] == ("value", 400.0, None, None) and second.without_return == 1
    assert second.target is None


def test_the_table_says_what_is_missing_and_is_written_as_csv_and_json(
    tmp_path: Path,
) -> None:
    write_run(tmp_path / "runs/a-1", [1.0, 2.5], seed=1, target=9.0, rate=0.1)
    write_run(tmp_path / "runs/b-1", [1.0, 9.5], seed=1, target=9.0, rate=0.2)
    write_run(tmp_path / "runs/b-2", [1.0, 9.0], seed=2, target=9.0, rate=0.2)
    write_run(tmp_path / "runs/c-1", [None], seed=1, target=None, rate=0.3)
    said = aclearn("compare", tmp_path / "runs", "--to", tmp_path / "t.csv")
    _, first, second, third, wrote = said.splitlines()
    assert "2.50 (1 run, no interval)" in first and "9: 0 of 1" in first
    assert first.split()[-2:] == ["n/a", "n/a"]
    assert "mean 9.25 [9.00, 9.50]" in second and "9: 2 of 2" in second
    assert second.split()[-3:] == ["2.00", "k", "60"]
    assert "n/a, no mean yet" in third and "none" in third
    assert wrote == f"wrote {tmp_path / 't.csv'}"

    aclearn("compare", tmp_path / "runs", "--to", tmp_path / "t.json")
    rows = json.loads((tmp_path / "t.json").read_text())
    assert [row["group"].split()[0] for row in rows] == ["rate=0.1", "rate=0.2", "rate=0.3"]
    assert rows[0]["last_return_low"] is None and rows[1]["last_return_low"] == 9.0
    assert rows[1]["seconds_to_target_median"] == 60.0 and rows[2]["last_return_value"] is None
    read = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert [list(row) for row in read] == [list(row) for row in rows]
    assert (read[0]["last_return_low"], read[1]["last_return_low"]) == ("", "9.0")

    with pytest.raises(AclearnError, match=r"--to: .*t\.csv exists already; --force"):
        aclearn("compare", tmp_path / "runs", "--to", tmp_path / "t.csv")
    with pytest.raises(AclearnError, match=r"--to: t\.txt: expected .*\.csv or \.json"):
        aclearn("compare", tmp_path / "runs", "--to", "t.txt")
