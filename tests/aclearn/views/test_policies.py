"""A run with several policies, in the console, in plots and in comparisons."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from aclearn.views import figure_of_curves, find_curves, read_curve, read_curves
from aclearn.views.comparison import compare_group
from aclearn.views.console import PlainConsole
from aclearn.views.live_console import LiveConsole
from aclearn.views.progress import ProgressEstimate
from aclearn.views.run_groups import group_runs
from tests.support.seeded_runs import write_run

_POLICIES: dict[str, dict[str, Any]] = {
    "tagger": {
        **{"return_mean_100": 3.25, "episodes_in_mean": 100, "episode_length_mean": 30.5},
        **{"entropy": 1.125, "behaviour_kl_estimate": 0.0625, "policy_loss": -0.5},
        **{"value_loss": 0.75, "env_steps": 400, "learned_steps": 350, "updates": 7},
        **{"evaluator_return_mean": 4.0, "evaluator_return_standard_error": 0.5},
    },
    "runner": {"return_mean_100": -3.25, "episodes_in_mean": 20, "episode_length_mean": 31.0},
}


def _line(**changes: Any) -> dict[str, Any]:
    return {"time_s": 20.0, "env_steps": 800, "return_mean_100": None, "policies": _POLICIES}


def test_a_plain_console_has_a_line_for_each_policy() -> None:
    stream = io.StringIO()
    PlainConsole({}, name="r", stream=stream).update(_line(), [])
    first, tagger, runner, *_ = stream.getvalue().splitlines()
    assert first.startswith("time=0:00:20 return=- env_steps=800")
    assert tagger == (
        "policy=tagger return=3.25 evaluated=4.00±0.5 length=30.5 env_steps=400 entropy=1.12 "
        "behaviour_kl_estimate=0.0625 policy_loss=-0.5 value_loss=0.75 updates=7 episodes=0"
    )
    assert runner.startswith("policy=runner return=-3.25 mean_of=20 length=31 env_steps=0")


def test_the_live_view_has_a_row_for_each_policy() -> None:
    from rich.console import Console

    console = Console(width=80, height=24, file=io.StringIO(), record=True)
    view = LiveConsole({}, name="r", console=console)
    view.observe(_line())
    console.print(view.view())
    rows = [line.strip("│ ").split() for line in console.export_text().splitlines()]
    assert [
        "Policy",
        "Return",
        "Evaluated",
        "Length",
        "Learned",
        "Entropy",
        "KL",
        "π",
        "loss",
        "V",
        "loss",
    ] in rows
    assert ["tagger", "3.25", "4.00±0.5", "30.5", "350", "1.1", "0.062", "-0.5", "0.75"] in rows
    assert ["runner", "-3.25", "-", "31", "-", "-", "-", "-", "-"] in rows


@pytest.mark.parametrize(("target", "label"), [(6.0, "return 3.0 of 6"), (None, "no end is set")])
def test_progress_is_towards_the_one_target_of_a_mapping(target, label) -> None:
    progress = ProgressEstimate({"target_return": target}).observe({**_line(), "judged_return": 3})
    assert progress.label == label


def _run(folder: Path, seed: int) -> Path:
    """The tagger gains what the runner loses, and the run's mean is the tagger's."""
    run = write_run(folder, [0.0, 2.0, 4.0], seed=seed, evaluations=[None, 1.0, 3.0])
    config = json.loads((run / "config.yaml").read_text())
    config["run"]["target_return"] = {"tagger": 3.5}
    (run / "config.yaml").write_text(json.dumps(config))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        mean, evaluated = line["return_mean_100"], line.get("evaluator_return_mean")
        line["policies"] = {
            "tagger": {"return_mean_100": mean, "target_return": 3.5},
            "runner": {"return_mean_100": -mean},
        }
        line["target_return"] = None
        line["reached_target_at_s"] = 120.0 if mean >= 3.5 else None
        if evaluated is not None:
            for name, sign in (("tagger", 1.0), ("runner", -1.0)):
                line["policies"][name] |= {
                    "evaluator_return_mean": sign * evaluated,
                    "evaluator_return_standard_error": 0.25,
                }
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return run


def test_each_policy_is_a_curve_and_a_group_over_seeds(tmp_path: Path) -> None:
    runs = [_run(tmp_path / f"tag-{seed}", seed) for seed in (1, 2)]
    tagger, runner = read_curves(runs[0])
    assert (tagger.name, runner.name) == ("tag-1/tagger", "tag-1/runner")
    assert (tagger.training.returns, runner.training.returns) == ([0, 2, 4], [0, -2, -4])
    assert (tagger.evaluator.returns, runner.evaluator.returns) == ([1, 3], [-1, -3])
    assert runner.evaluator.standard_errors == (0.25, 0.25)
    assert (tagger.target, runner.target) == (3.5, None)
    assert tagger.reached is not None and tagger.reached.time_s == 120.0
    assert runner.reached is None
    assert read_curve(runs[0]).training == tagger.training
    groups = group_runs(find_curves(runs))
    assert [(group.label, len(group.curves)) for group in groups] == [
        ("policy=tagger", 2),
        ("policy=runner", 2),
    ]
    rows = [compare_group(group) for group in groups]
    assert [(row.last_return.value, row.reached, row.target) for row in rows] == [
        (4.0, 2, 3.5),
        (-4.0, 0, None),
    ]
    figure = figure_of_curves(find_curves(runs))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [label.split(" ")[0] for label in labels if "evaluator" not in label] == [
        "policy=tagger",
        "policy=runner",
        "target",
    ]
