"""Whole runs with an evaluator: what it judges, and that its faults are its own."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest

from aclearn.runs import kept_in, load_best
from services.evaluator.evaluate import evaluate
from services.evaluator.saved_policy import load_policy
from services.roles import EVALUATOR, TRAINER
from tests.support.evaluation_envs import FailingCartPole
from tests.support.whole_run import WholeRun

_EVALUATOR: dict[str, Any] = {"every_steps": 80, "episodes": 2}
_BOUND: dict[str, Any] = {"max_env_steps": 900}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> WholeRun:
    """A run without an evaluator, which has ended."""
    run = WholeRun(tmp_path_factory.mktemp("sound"), run=_BOUND)
    run.run()
    return run


def _evaluated(run: WholeRun) -> list[tuple[float, float, float]]:
    names = ("evaluator_version", "evaluator_return_mean", "evaluator_env_steps")
    lines = [tuple(line[name] for name in names) for line in run.lines()]
    return [line for line, _ in groupby(lines) if line[0] is not None]


def test_a_seed_gives_the_same_judgements_and_best_policy_and_what_it_gives_without_any(
    sound, tmp_path
) -> None:
    first, second = (
        WholeRun(tmp_path / name, run=_BOUND, evaluator=_EVALUATOR) for name in ("a", "b")
    )
    summary = first.run()
    second.run()
    judged = _evaluated(first)
    assert judged == _evaluated(second)
    assert len({steps for _, _, steps in judged}) == summary["evaluator_evaluations"] >= 5
    steps = [steps for _, _, steps in judged]
    assert np.diff(steps).min() >= 80
    first.assert_same_checkpoint(second)
    first.assert_same_checkpoint(sound)

    best = load_best(first.path / "checkpoints")
    assert summary["best_return"] == summary["evaluator_best_return"]
    mean = max(mean for _, mean, _ in judged)
    assert best.state["judged"]["return_mean"] == mean
    version = next(version for version, each, _ in judged if each == mean)
    assert best.state["counters"]["policy_version"] == version


def test_resident_environments_are_judged_every_so_many_steps_too(tmp_path) -> None:
    pytest.importorskip("warp")
    run = WholeRun(
        tmp_path,
        run={"max_updates": 80, "metrics_every_s": 0.0625},
        resident={"envs": 16, "device": "cpu"},
        actors={"envs_per_group": 16, "unroll_length": 8},
        trainer={"device": "cpu", "amp": "off"},
        evaluator={"every_steps": 1280, "episodes": 3},
        monitor={"heartbeat_every_s": 3.0},  # as seldom as by default: 48 batches
    )
    summary = run.run()
    steps = [steps for _, _, steps in _evaluated(run)]
    # batches of 16 × 8 steps, a few less: an evaluation is due after every tenth or eleventh
    assert len(steps) == summary["evaluator_evaluations"] >= 7
    assert steps[0] == 0 and all(1280 <= gap < 1280 + 128 for gap in np.diff(steps))


def test_the_compressed_policy_is_judged_beside_the_policy(tmp_path) -> None:
    run = WholeRun(
        tmp_path,
        evaluator=_EVALUATOR,
        compressor={"chain": ["int8", "onnx"], "fidelity_observations": 0},
    )
    key = "evaluator_compressed_return_mean"
    run.run_until(lambda: run.lines() and run.lines()[-1].get(key) is not None, "it is judged")
    run.monitor.state.stop("enough", run.clock())
    summary = run.run()
    assert summary["evaluator_compressed_return_mean"] >= 8.0
    assert summary["evaluator_compressed_version"] >= 1
    assert summary["evaluator_return_mean"] >= 8.0


def test_a_run_ends_at_the_evaluators_mean_with_the_best_of_exactly_that_version(tmp_path) -> None:
    run = WholeRun(
        tmp_path, run={"target_return": 9.0, "metrics_every_s": 0.25}, evaluator=_EVALUATOR
    )
    summary = run.run()
    assert summary["reason"] == "target_reached" and summary["episodes_in_mean"] < 100
    assert summary["judged_return"] == summary["evaluator_return_mean"] >= 9.0
    best = load_best(run.path / "checkpoints")
    assert best.state["judged"]["return_mean"] == summary["best_return"]
    assert best.state["counters"]["policy_version"] == summary["evaluator_version"]


def test_a_run_stops_early_and_with_a_higher_bound_goes_on_from_there(tmp_path) -> None:
    # all episodes have the same return, so that none is better than the first
    evaluator = {**_EVALUATOR, "env": {"id": "tests.support.evaluation_envs:Short"}}
    first = WholeRun(tmp_path, evaluator=evaluator | {"stop_after": 2})
    summary = first.run()
    assert summary["reason"] == "early_stop"
    counts = ("evaluator_evaluations", "evaluator_since_best", "evaluator_best_return")
    assert [summary[name] for name in counts] == [3, 2, 5.0]
    again = WholeRun(tmp_path, resume=True, evaluator=evaluator | {"stop_after": 4})
    summary = again.run()
    assert summary["reason"] == "early_stop"
    assert [summary[name] for name in counts] == [5, 4, 5.0]
    assert load_best(again.path / "checkpoints").state["judged"]["return_mean"] == 5.0


def test_policies_are_kept_evenly_over_the_run_and_each_can_be_played_later(tmp_path) -> None:
    run = WholeRun(
        tmp_path, run=_BOUND | {"checkpoints_kept": 1}, evaluator=_EVALUATOR | {"keep": 3}
    )
    run.run()
    kept = kept_in(run.path / "checkpoints")
    marks = [each.mark for each in kept]
    assert marks.count("kept") == 3 and marks.count("best") == marks.count("") == 1
    assert (kept[0].env_steps, kept[-1].percent) == (0, 100.0)
    middle = next(each for each in kept[1:] if each.mark == "kept")
    versions = [version for version, _, _ in _evaluated(run)]
    for at in (middle.env_steps, f"{middle.percent}%"):
        saved = load_policy(run.path, at=at)
        assert saved.env_steps == middle.env_steps
        assert saved.at.version in versions  # it is one that was judged
        assert len(evaluate(run.path, episodes=2, at=at).returns) == 2
    resumed = WholeRun(tmp_path, resume=True, run={"max_env_steps": 1000}, evaluator=_EVALUATOR)
    assert resumed.run()["env_steps"] >= 1000  # from the newest, not from a kept one


@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_an_environment_of_the_evaluator_that_fails_leaves_training_as_it_is(
    how, sound, tmp_path
) -> None:
    FailingCartPole.steps = 0
    run = WholeRun(
        tmp_path,
        run=_BOUND,
        actors={"step_timeout_s": 1.0, "max_env_faults": 0},
        evaluator={
            **_EVALUATOR,
            "env": {
                "id": "tests.support.evaluation_envs:FailingCartPole",
                "kwargs": {"how": how, "after": 300},
            },
        },
    )
    summary = run.run()
    assert "evaluator-0" not in run.roles
    assert run.heartbeats["evaluator-0"].gauges["env_faults"] == 1.0
    assert summary["reason"] == "max_env_steps"
    assert summary["evaluator_evaluations"] >= 1
    run.assert_same_checkpoint(sound)


def test_an_evaluator_with_other_spaces_is_missed_by_name_and_the_run_goes_on(tmp_path) -> None:
    run = WholeRun(
        tmp_path,
        run=_BOUND,
        monitor={"silent_after_s": 6.0},
        actors={"step_timeout_s": 1.0},
        evaluator={**_EVALUATOR, "env": {"id": "Acrobot-v1"}},
    )
    notes: list[str] = []
    while run.round():
        if run.monitor is not None:
            notes = run.monitor.state.status()["notes"]
    run.close()
    [note] = [note for note in notes if "evaluator" in note]
    assert "no evaluator since 6 s, which judges this run" in note
    summary = run.summary()
    assert summary["reason"] == "max_env_steps"
    assert (summary["evaluator_evaluations"], summary["best_return"]) == (0, None)


def test_a_killed_evaluator_starts_again_with_the_version_that_is_set_aside(tmp_path) -> None:
    run = WholeRun(tmp_path, run={"max_env_steps": 4000}, evaluator=_EVALUATOR)
    run.run_until(lambda: len(_evaluated(run)) > 1, "it has judged two")
    run.kill("evaluator-0")
    before = len(_evaluated(run))
    run.start(EVALUATOR)
    run.run_until(lambda: len(_evaluated(run)) > before + 1, "it judges again")
    versions = [version for version, _, _ in _evaluated(run)]
    assert versions == sorted(set(versions))
    assert run.lines()[-1]["evaluator_evaluations"] == len(versions)
    run.close()


def test_weights_whose_trainer_died_before_their_judgement_end_no_run(tmp_path) -> None:
    run = WholeRun(
        tmp_path, run={"target_return": 8.0, "metrics_every_s": 0.25}, evaluator=_EVALUATOR
    )
    run.run_until(lambda: run.passed["WeightsToJudge"], "the first version is given")
    run.kill("trainer-0")
    run.start(TRAINER)
    summary = run.run()
    assert summary["reason"] == "target_reached"
    assert summary["evaluator_generation"] == summary["generation"] == 1
    best = load_best(run.path / "checkpoints")
    assert best.state["judged"]["return_mean"] == summary["evaluator_return_mean"]


def test_resident_environments_are_judged_in_gymnasium(tmp_path) -> None:
    pytest.importorskip("aclearn.resident")
    run = WholeRun(
        tmp_path,
        resident={"envs": 64, "device": "cpu"},
        actors={"envs_per_group": 16, "unroll_length": 8},
        trainer={"device": "cpu", "amp": "off"},
        run={"max_env_steps": 150_000},
        evaluator={"every_steps": 5000, "episodes": 2},
    )
    assert set(run.roles) == {"monitor-0", "trainer-0", "evaluator-0"}
    summary = run.run()
    assert summary["evaluator_evaluations"] >= 3
    assert load_best(run.path / "checkpoints").state["judged"]["by"] == "evaluator"
