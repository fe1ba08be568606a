"""The atlas: its rows, its resumption, what it says of cells, and that each cell can be trained."""

from __future__ import annotations

import csv
import itertools
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from aclearn.config import load_config
from aclearn.errors import ConfigError, LearningLost

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import atlas
from atlas_report import Row, differing, picture, report, scores, write_between
from lagged import Trained

_POLE = atlas.Task("cartpole.yaml", 1_500, 20.0, 475.0)


def _rows(task: str, compressor: str, lag: int, **returns: list[float]) -> list[Row]:
    return [
        Row(task, compressor, correction.replace("_", "-"), lag, seed, "max_env_steps", value)
        for correction, values in returns.items()
        for seed, value in enumerate(values, 1)
    ]


def test_each_cell_has_a_configuration_and_what_is_refused_says_why() -> None:
    cells = [(name, "vtrace") for name in atlas.COMPRESSORS]
    cells += [("int8", name) for name in atlas.CORRECTIONS]
    refused = []
    for task, (compressor, correction) in itertools.product(atlas.TASKS, cells):
        trial = atlas.Trial(task, compressor, correction, 0, 1)
        try:
            load_config(atlas._CONFIGS / atlas.TASKS[task].config, trial.overrides())
        except ConfigError as error:
            refused.append((task, correction, str(error)))
    assert refused == []
    assert len(atlas.pilot()) == len(set(atlas.pilot())) == 3 * 4 * 4 * 2 * 3


def test_rows_are_appended_as_they_come_and_a_resumed_atlas_trains_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(atlas.TASKS, "acrobot", _POLE)
    arguments = ["--out", str(tmp_path), "--only", "acrobot-int8-64-auto"]
    atlas.main([*arguments, "--only", "1-acrobot-int8-64-auto"])
    path = tmp_path / "atlas_pilot.csv"
    [first] = csv.DictReader(path.read_text().splitlines())
    assert tuple(first) == atlas.FIELDS
    assert first["ended"] == "max_env_steps" and int(first["env_steps"]) >= 1_500
    assert first["machine"] and first["commit"]
    assert 5 < float(first["mean_return"]) < 100
    # the links get observations soon enough for six versions; what acts is older than all of them
    assert 0 < float(first["kl_mean"]) < 1 and float(first["compressed_share"]) == 0.0
    settings = ["cartpole.yaml", *atlas.Trial("acrobot", "int8", "auto", 64, 1).overrides()]
    assert first["settings"] == " ".join(settings)
    with pytest.raises(SystemExit):
        atlas.main(arguments)
    monkeypatch.setattr(atlas, "train_lagged", _cut)
    monkeypatch.setattr(atlas, "ProcessPoolExecutor", _Here)
    atlas.main([*arguments, "--resume"])
    rows = list(csv.DictReader(path.read_text().splitlines()))
    # seed 2 was cut by the clock, which says nothing of it: it has no row and is trained again
    assert [(row["seed"], row["ended"]) for row in rows] == [
        ("1", "max_env_steps"),
        ("3", "LearningLost: not finite"),
    ]
    assert rows[0] == first
    assert [row.mean_return is None for row in atlas.rows_of(path)] == [False, True]


def _cut(config: Path, overrides: list[str], lag: int) -> Trained:
    if "run.seed=3" in overrides:
        raise LearningLost("not\nfinite")
    line = {"env_steps": 10, "return_mean_100": 1.0, "lag_mean": 64.0, "episodes": 1}
    return Trained([line], "max_wall_s")


class _Here(atlas.ProcessPoolExecutor):  # type: ignore[misc]
    """Trains in this process, where what the test has replaced is known."""

    def submit(self, function: Any, *given: Any) -> Any:  # type: ignore[override]
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_result(function(*given))
        return future


def test_what_was_not_run_is_written_as_not_run(tmp_path: Path) -> None:
    rows = _rows("acrobot", "int8", 0, none=[-300, -300, -300], auto=[-320, -320, -320])
    rows.append(Row("acrobot", "int8", "vtrace", 0, 1, "LearningLost: it", None))
    tasks = {"acrobot": atlas.TASKS["acrobot"]}
    axes = (["int8", "fp16"], ["none", "vtrace", "auto"], [0])
    text = report(rows, tasks, *axes)
    assert (
        "| int8 | 0 | -300 (-300 to -300), 3 | none went to its end | -320 (-320 to -320), 3 "
        "| none above auto | 10.0% (over the bar, beyond seeds) |"
    ) in text
    assert "| fp16 | 0 | not run | not run | not run | - | - |" in text
    assert "behind the best fixed correction in 0 of 1 cells; 1 of 2 were not run" in text
    picture(rows, tasks, *axes, out=tmp_path / "atlas.png")
    assert (tmp_path / "atlas.png").stat().st_size > 5_000


def test_a_row_of_all_compressors_and_cells_without_a_verdict() -> None:
    rows = [
        *_rows("acrobot", "int8", 0, none=[-300, -200, -250], auto=[-210, -260, -280]),
        *_rows("acrobot", "fp16", 0, none=[-500, -490, -495], auto=[-500, -480, -499]),
        *_rows("acrobot", "none", 0, none=[-300], auto=[-200]),
        *_rows("acrobot", "prune50", 0, none=[-100, -100, -100]),  # not in the row of all
    ]
    tasks = {"acrobot": atlas.TASKS["acrobot"]}
    text = report(rows, tasks, ["int8", "fp16", "none"], ["none", "auto"], [0])
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()}
    # auto is at the same mean as none: -250
    assert lines["int8"].endswith("| no difference | 0.0% |")
    assert lines["fp16"].endswith("| none learned | - |")
    assert lines["none"].endswith("| -300, 1 | -200, 1 | one seed | -50.0% |")
    # one value a seed: of three compressors with seed 1, of two with the others
    seeds = [(-300 - 500 - 300) / 3, (-200 - 490) / 2, (-250 - 495) / 2]
    assert f"| all | 0 | {sum(seeds) / 3:.4g} ({min(seeds):.4g} to" in lines["all"]
    assert "(-372.5 to -345), 3 |" in lines["all"]
    assert "in 2 of 2 cells; 1 of 3 were not run or not learned" in text


def test_tables_go_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "atlas.md"
    begin = "<!-- written by benchmarks/atlas.py from data/atlas_pilot.csv -->"
    page.write_text(f"# Head\n{begin}\nold\n<!-- end -->\nTail\n", "utf-8")
    atlas.main(["--out", str(tmp_path), "--report", str(page)])
    text = page.read_text("utf-8")
    assert text.startswith(f"# Head\n{begin}\n\n### acrobot\n") and text.endswith("-->\nTail\n")
    assert "old" not in text and text.count("<!-- end -->") == 1
    page.write_text("no marks", "utf-8")
    with pytest.raises(ValueError, match="between which tables go"):
        write_between(page, "data/atlas_pilot.csv", "")


@pytest.mark.parametrize("values", [[-10.0, 3.0, 40.0], [0.0, 10.0, 20.0, 30.0, 1000.0]])
def test_means_and_intervals_are_those_of_all_resamples(values: list[float]) -> None:
    [of] = scores(_rows("acrobot", "none", 8, none=values)).values()
    assert of["none"] is not None
    cut = len(values) // 4
    every = sorted(
        sum(sorted(draw)[cut : len(draw) - cut]) / (len(draw) - 2 * cut)
        for draw in itertools.product(values, repeat=len(values))
    )
    # every resample once, so these are the exact ends; the report draws 10 000 of them
    low, high = (every[math.ceil(share * len(every)) - 1] for share in (0.025, 0.975))
    kept = sorted(values)[cut : len(values) - cut]
    assert of["none"].mean == pytest.approx(sum(kept) / len(kept))
    spread = max(values) - min(values)
    assert of["none"].low == pytest.approx(low, abs=0.03 * spread)
    assert of["none"].high == pytest.approx(high, abs=0.03 * spread)


def test_cells_differ_where_an_interval_lies_below_another_and_get_five_seeds() -> None:
    apart = _rows("acrobot", "int8", 64, none=[-300, -290, -310], vtrace=[-200, -190, -210])
    near = _rows("acrobot", "none", 0, none=[-300, -200, -250], vtrace=[-260, -210, -290])
    assert differing([*apart, *near]) == [("acrobot", "int8", 64)]
    trials = atlas.full([*apart, *near])
    assert len(trials) == 5 * len(atlas.CORRECTIONS)
    assert {(t.task, t.compressor, t.lag) for t in trials} == {("acrobot", "int8", 64)}


def test_the_curves_area_is_over_agent_steps() -> None:
    lines = [{"env_steps": n, "return_mean_100": r} for n, r in ((100, 10.0), (400, 30.0))]
    assert Trained(lines, "").mean_return == (100 * 10.0 + 300 * 30.0) / 400
