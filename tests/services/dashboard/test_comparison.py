"""Several runs as curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.dashboard.comparison import compare
from services.dashboard.run_index import IndexedRun, open_run


def _run(path: Path, config: str, *lines: dict[str, Any]) -> IndexedRun:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(config)
    with (path / "metrics.jsonl").open("w") as file:
        for i, line in enumerate(lines):
            axes = {"time_s": i, "env_steps": 10 * i, "learned_steps": 9 * i}
            file.write(json.dumps({**axes, **line}) + "\n")
    run = open_run(path.name, path)
    while run.series.read_on():
        pass
    return run


def _config(seed: int, rate: float) -> str:
    return f"run: {{seed: {seed}}}\noptimiser: {{learning_rate: {rate}}}\n"


def test_runs_are_grouped_by_their_settings_not_by_their_names(tmp_path: Path) -> None:
    first, second, other = (
        _run(
            tmp_path / name, _config(seed, rate), *({"return_mean_100": value * i} for i in (0, 1))
        )
        for name, seed, rate, value in (("x", 1, 0.1, 2), ("y", 2, 0.1, 4), ("x-2", 3, 0.2, 9))
    )
    found = compare([first, second, other], "return_mean_100", "env_steps", each=False)
    mean, alone = found["lines"]
    assert (mean["label"], mean["note"]) == ("learning_rate=0.1", "mean of 2 runs, 95 % interval")
    assert (mean["x"][0], mean["x"][-1], mean["y"][-1]) == (0, 10, 3)
    assert (mean["low"][-1], mean["high"][-1]) == (2, 4)  # the least and the largest of two
    assert (alone["label"], alone["x"], alone["y"], alone["low"]) == (
        "learning_rate=0.2",
        [0, 10],
        [0, 9],
        None,
    )


@pytest.mark.parametrize(("axis", "x"), [("env_steps", 4), ("time_s", 0.5), ("learned_steps", 3.6)])
def test_an_evaluators_returns_stand_at_its_weights(tmp_path: Path, axis: str, x: float) -> None:
    line = {
        "evaluator_evaluations": 1,
        "evaluator_return_mean": 5.0,
        "evaluator_return_standard_error": 0.5,
        "evaluator_env_steps": 4,
        "evaluator_age_s": 1.5,
        "target_return": 8.0,
    }
    run = _run(tmp_path / "a", _config(1, 0.1), {}, {}, line)
    found = compare([run], "evaluator_return_mean", axis, each=False)
    [curve] = found["lines"]
    assert (curve["x"], curve["y"], curve["low"], curve["high"]) == ([x], [5], [4.5], [5.5])
    assert curve["note"] == "1 run, ± standard error"
    assert found["targets"] == [8.0]


def test_each_policy_of_a_run_is_a_curve(tmp_path: Path) -> None:
    parts = {name: {"return_mean_100": value} for name, value in (("tagger", 1.0), ("runner", 2.0))}
    run = _run(tmp_path / "tag", _config(1, 0.1), {"policies": parts})
    found = compare([run], "return_mean_100", "time_s", each=False)
    assert [(line["label"], line["y"]) for line in found["lines"]] == [
        ("policy=tagger", [1]),
        ("policy=runner", [2]),
    ]


def test_a_run_without_the_figure_has_a_line_without_points(tmp_path: Path) -> None:
    run = _run(tmp_path / "a", _config(1, 0.1), {"time_s": 1})
    [line] = compare([run], "entropy", "env_steps", each=False)["lines"]
    assert (line["x"], line["y"], line["note"]) == ([], [], "no value yet")
