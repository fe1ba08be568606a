"""Whole runs whose resident environments have several agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.evaluator.evaluate import evaluate
from tests.support.whole_run import WholeRun

pytest.importorskip("aclearn.resident")

#: Four taggers and a runner for at most 12 steps.
_TAG = {
    "id": "resident:tag_gridworld",
    "kwargs": {"num_taggers": 4, "grid_length": 4, "episode_length": 12},
}
_RESIDENT: dict[str, Any] = {
    "env": _TAG,
    "resident": {"envs": 32, "device": "cpu"},
    "actors": {"envs_per_group": 16, "unroll_length": 8},  # 16: the default, which WholeRun changes
    "trainer": {"device": "cpu", "amp": "off", "minibatches": 2},
}


def test_one_policy_learns_from_all_agents_and_a_resumed_run_has_the_same_bits(
    tmp_path: Path,
) -> None:
    whole = WholeRun(tmp_path / "whole", **_RESIDENT, run={"max_updates": 24})
    summary = whole.run()
    # 12 batches of 32 × 5 agents × 8 steps, less the step of all five agents after each end
    assert summary["env_steps"] == summary["learned_steps"] + sum(summary["dropped_steps"].values())
    lost = 12 * 32 * 5 * 8 - summary["learned_steps"]
    assert lost % 5 == 0 and 0 <= summary["episodes"] - lost <= 32 * 5
    assert summary["episodes"] > 1000
    WholeRun(tmp_path / "broken", **_RESIDENT, run={"max_updates": 10}).run()
    resumed = WholeRun(tmp_path / "broken", resume=True, **_RESIDENT, run={"max_updates": 24})
    assert resumed.run()["learned_steps"] == summary["learned_steps"]
    resumed.assert_same_checkpoint(whole)

    result = evaluate(whole.path, episodes=20)  # in the same environment
    assert len(result.returns) == 100


def test_actors_step_a_world(tmp_path: Path) -> None:
    settings = {"env": _TAG, "run": {"max_updates": 4}}
    summary = WholeRun(tmp_path, **settings, actors={"processes": 1, "envs_per_group": 10}).run()
    assert summary["updates"] == 4 and summary["learned_steps"] > 4 * 4 * 40


def test_actors_step_a_world_for_several_policies(tmp_path: Path) -> None:
    policies = {"tagger": {"agents": "tagger_*"}, "runner": {"agents": "runner_*"}}
    settings = {"env": _TAG, "run": {"max_updates": 4}, "policies": policies}
    run = WholeRun(tmp_path, **settings, actors={"processes": 1, "envs_per_group": 10})
    summary = run.run()
    assert summary["updates"] == 4 and summary["policies"].keys() == policies.keys()
