"""Marks of the strategies' decisions on learning curves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aclearn.errors import RunFolderError
from aclearn.views import Axis, figure_of_curves, read_curve
from aclearn.views.decision_marks import Mark, read_marks


def _run(folder: Path, *decisions: dict) -> Path:
    folder.mkdir()
    lines = [
        {
            "time_s": 60.0 * n,
            "env_steps": 1000 * n,
            "learned_steps": 900 * n,
            "return_mean_100": float(n),
        }
        for n in range(5)
    ]
    _write(folder / "metrics.jsonl", lines)
    if decisions:
        _write(folder / "strategies.jsonl", decisions)
    return folder


def _write(path: Path, lines) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _decision(time_s: float, **fields) -> dict:
    return {"time_s": time_s, "env_steps": 10 * time_s, "strategy": "threshold", **fields}


def test_each_change_of_a_setting_is_a_mark_at_its_time_and_step(tmp_path: Path) -> None:
    run = _run(
        tmp_path / "run",
        _decision(60.0, rung=0),  # new state alone
        _decision(90.0, rung=1),
        _decision(100.0, strategy="linear_mix", compressed_share=0.25),
        _decision(120.0, rung=1),
        _decision(180.0, rung=0),
        _decision(200.0, strategy="linear_mix", compressed_share=1.0),
    )
    curve = read_curve(run)
    assert curve.marks == [
        Mark(90.0, 900.0, "rung 1"),
        Mark(100.0, 1000.0, "α 0.25"),
        Mark(180.0, 1800.0, "rung 0"),
        Mark(200.0, 2000.0, "α 1.00"),
    ]
    over_time, over_steps = figure_of_curves([curve]).axes
    dotted = [x for x in over_time.lines if x.get_linestyle() == ":"]
    assert [x.get_xdata()[0] for x in dotted] == [1.5, 100 / 60, 3.0, 200 / 60]  # minutes
    assert [text.get_text() for text in over_time.texts] == [mark.text for mark in curve.marks]
    marked = [x.get_xdata()[0] for x in over_steps.lines if x.get_linestyle() == ":"]
    assert marked == [900.0, 1000.0, 1800.0, 2000.0]
    assert {x.get_color() for x in dotted} == {over_time.lines[0].get_color()}
    over_learned = figure_of_curves([curve], axes=[Axis.LEARNED]).axes[0]
    marked = [x.get_xdata()[0] for x in over_learned.lines if x.get_linestyle() == ":"]
    assert marked == [1350.0, 1500.0, 2700.0, 3000.0]


def test_many_marks_have_no_text(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", *(_decision(float(n), rung=n % 2) for n in range(1, 60)))
    over_time = figure_of_curves([read_curve(run)]).axes[0]
    assert len(over_time.lines) == 60 and len(over_time.texts) == 0


def test_a_run_without_strategies_has_no_marks(tmp_path: Path) -> None:
    assert read_marks(_run(tmp_path / "run")) == []


@pytest.mark.parametrize("line", [{}, {"strategy": "s"}, _decision(1.0), _decision(1.0, rung="x")])
def test_a_log_of_something_else_is_refused(tmp_path: Path, line: dict) -> None:
    with pytest.raises(RunFolderError, match=r"strategies\.jsonl has a line without a usable"):
        read_marks(_run(tmp_path / "run", line))


def test_a_run_without_a_return_yet_has_no_marks_over_learned_steps(tmp_path: Path) -> None:
    new = _run(tmp_path / "new", _decision(60.0, rung=1))
    _write(new / "metrics.jsonl", [{"time_s": 90.0, "env_steps": 900, "learned_steps": 800}])
    curves = [read_curve(_run(tmp_path / "old")), read_curve(new)]
    [over_steps] = figure_of_curves(curves, axes=[Axis.LEARNED]).axes
    assert not [x for x in over_steps.lines if x.get_linestyle() == ":"]
