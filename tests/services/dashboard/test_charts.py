"""The charts of a run and their curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from services.dashboard.charts import charts, curves
from services.dashboard.decisions import read_decisions
from services.dashboard.run_index import open_run


def _shown(run: Path, *lines: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    run.mkdir(exist_ok=True)
    axes = ("env_steps", "learned_steps")
    with (run / "metrics.jsonl").open("w") as file:
        for i, line in enumerate(lines):
            file.write(json.dumps({"time_s": i, **{name: 10 * i for name in axes}, **line}) + "\n")
    found = open_run("a", run)
    while found.series.read_on():
        pass
    decisions = read_decisions(run)
    made = charts(found, decisions)
    return made, curves(found, made, decisions)


def _evaluation(number: int, mean: float, steps: int, age_s: float) -> dict[str, Any]:
    return {
        "evaluator_evaluations": number,
        "evaluator_return_mean": mean,
        "evaluator_return_standard_error": 0.5,
        "evaluator_env_steps": steps,
        "evaluator_age_s": age_s,
    }


def test_an_evaluation_stands_once_and_where_its_weights_were_published(tmp_path: Path) -> None:
    first, second = _evaluation(1, 3.0, 5, 1.5), _evaluation(2, 4.0, 20, 1.0)
    [chart], found = _shown(tmp_path, {}, {}, first, {**first, "evaluator_age_s": 2.5}, second)
    assert chart["series"] == [
        {
            "figure": "evaluator_return_mean",
            "label": "evaluator_return_mean",
            "style": "dots",
            "frame": "evaluations",
            "error": "evaluator_return_standard_error",
        }
    ]
    assert found["evaluations"] == {
        "env_steps": [5, 20],
        "time_s": [0.5, 3],
        "learned_steps": [5, 20],
        "evaluator_return_mean": [3, 4],
        "evaluator_return_standard_error": [0.5, 0.5],
    }


def test_each_of_several_policies_has_charts_of_its_own_and_its_target(tmp_path: Path) -> None:
    parts = {
        "tagger": {"return_mean_100": 1.0, "entropy": 0.5, "target_return": 7.0},
        "runner": {"return_mean_100": -1.0},
    }
    made, found = _shown(tmp_path, {"policies": parts, "lag_mean": 2.0})
    assert [(chart["policy"], chart["title"], chart["target"]) for chart in made] == [
        (None, "lag (versions)", None),
        ("tagger", "return", 7.0),
        ("tagger", "entropy", None),
        ("runner", "return", None),
    ]
    [series] = made[1]["series"]
    assert (series["figure"], series["label"]) == (
        "policies/tagger/return_mean_100",
        "return_mean_100",
    )
    assert found["lines"]["policies/tagger/return_mean_100"] == [1]


def test_places_never_fall_where_a_trainer_went_back(tmp_path: Path) -> None:
    _, found = _shown(tmp_path, {}, {"learned_steps": 50}, {"learned_steps": 30, "entropy": 1.0})
    assert found["lines"]["learned_steps"] == [0, 50, 50]


def _decision(time_s: float, verdict: str, tried: int, kept: int, rate: float) -> str:
    line = {
        **{"time_s": time_s, "verdict": verdict, "reason": "<b>", "rate": rate, "baseline": 5.0},
        **{"counts": {"actors": tried}, "kept": {"actors": kept}, "fixed": {"trainers": 1}},
        "temperature": 0.0,
    }
    return json.dumps(line) + "\n"


def test_the_tuners_counts_are_kept_or_tried_and_its_decisions_are_marked(tmp_path: Path) -> None:
    (tmp_path / "tuner.jsonl").write_text(
        _decision(1, "baseline", 2, 2, 5.0)
        + _decision(2, "accepted", 3, 3, 7.0)
        + _decision(2.5, "rejected", 4, 3, 1.0)
    )
    made, found = _shown(tmp_path, {}, {}, {}, {})
    counts, rates = made
    assert [(each["label"], each["style"]) for each in counts["series"]] == [
        ("trainers", "step"),
        ("actors", "step"),
        ("actors: tried, not kept", "points"),
    ]
    assert rates["title"] == "tuner's rates (per second)"
    assert found["tuner"] == {
        "env_steps": [10, 20, 25],
        "time_s": [1, 2, 2.5],
        "learned_steps": [10, 20, 25],
        "rate": [5, 7, None],
        "rate of tried": [None, None, 1],
        "baseline": [5, 5, 5],
        "kept/trainers": [1, 1, 1],
        "kept/actors": [2, 3, 3],
        "tried/trainers": [None, None, 1],
        "tried/actors": [None, None, 4],
    }
    marks = found[f"marks of {counts['marks']}"]
    assert (marks["env_steps"], marks["texts"]) == (
        [20, 25],
        ["accepted: actors 3", "rejected: actors 4"],
    )


def test_changes_of_strategies_are_marked_and_listed_and_a_damaged_file_is_a_warning(
    tmp_path: Path,
) -> None:
    lines = [
        {"time_s": i, "env_steps": 10 * i, "strategy": "s", "rung": rung, "cause": {"slope": 0.5}}
        for i, rung in ((1, 0), (2, 1))
    ]
    (tmp_path / "strategies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "tuner.jsonl").write_text('{"time_s": 3}\n')
    _, found = _shown(tmp_path, {}, {}, {})
    assert found["marks of strategies"]["env_steps"] == [20]
    assert found["marks of strategies"]["texts"] == ["rung 1"]
    decisions = read_decisions(tmp_path)
    assert decisions.tables[0]["rows"] == [
        ["0:00:02", "s", "rung 1", "slope 0.5"],
        ["0:00:01", "s", "rung 0", "slope 0.5"],
    ]
    assert decisions.warnings == ["tuner.jsonl has a line without a usable 'rate'; it is left out"]
