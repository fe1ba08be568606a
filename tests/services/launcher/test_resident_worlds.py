"""Whole runs whose resident environments have several agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

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


_TWO = {"tagger": {"agents": "tagger_*"}, "runner": {"agents": "runner_*"}}


def test_policies_learn_from_their_own_agents_and_a_resumed_run_has_the_same_bits(
    tmp_path: Path,
) -> None:
    # the policy of the runner is another network with another loss
    runner = {"policy": {"hidden": [4]}, "loss": {"entropy_cost": 0.1}}
    settings = _RESIDENT | {"policies": _TWO | {"runner": _TWO["runner"] | runner}}
    whole = WholeRun(tmp_path / "whole", **settings, run={"max_updates": 24})
    trainers = whole.roles["trainer-0"]._trainer.by_policy
    summary = whole.run()
    taggers, runners = (summary["policies"][name] for name in _TWO)
    # episodes and steps of each world's four taggers are those of its runner
    assert taggers["episodes"] == 4 * runners["episodes"] > 400
    assert taggers["env_steps"] == 4 * runners["env_steps"]
    assert summary["env_steps"] == taggers["env_steps"] + runners["env_steps"]
    # what a tagger is rewarded the runner pays, so the two have other returns
    assert abs(taggers["return_mean_100"] - runners["return_mean_100"]) > 0.5
    play = trainers["tagger"].source._play
    for name, width in (("tagger", 8), ("runner", 4)):
        rows, acting = play.rows[name], play._acting[name].acting
        b = rows.kind.buffers
        assert acting.network.get_parameter("hidden.0.weight").shape[0] == width
        # the recorded log-probabilities are those of each one's own network, for its own rows
        outputs = acting.network.outputs(rows.of_steps(b.observations)[:-1].flatten(0, 1))
        taken = rows.of_steps(b.actions).flatten()[:, None]
        found = outputs["policy"].log_softmax(-1).gather(1, taken)[:, 0]
        torch.testing.assert_close(found, rows.of_steps(b.log_probs).flatten(), rtol=0, atol=1e-5)
    WholeRun(tmp_path / "broken", **settings, run={"max_updates": 10}).run()
    resumed = WholeRun(tmp_path / "broken", resume=True, **settings, run={"max_updates": 24})
    resumed.run()
    resumed.assert_same_checkpoint(whole)


def test_a_fixed_policy_and_agents_of_other_spaces(tmp_path: Path) -> None:
    herd = {
        "env": {"id": "resident:tests.support.herd:HERD"},
        "policies": {"flock": {"agents": "sheep_*"}, "dog": {"agents": "rex", "learns": False}},
    }
    whole = WholeRun(tmp_path, **_RESIDENT | herd, run={"max_updates": 8})
    trainers = whole.roles["trainer-0"]._trainer.by_policy
    before = {k: v.clone() for k, v in trainers["dog"].learner.network.state_dict().items()}
    summary = whole.run()
    flock, dog = (summary["policies"][name] for name in ("flock", "dog"))
    assert flock["updates"] == 8 and flock["learned_steps"] > 1000
    assert dog["episodes"] > 50 and not dog["learned_steps"]
    after = trainers["dog"].learner.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
