"""Whole runs of algorithms whose critics value actions, on a replay memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aclearn
from aclearn.wire import Weights, decode
from services.commands.compress import compress_run
from services.commands.export import export_run
from services.evaluator.evaluate import evaluate
from tests.support.whole_run import WholeRun

_PENDULUM: dict[str, Any] = {
    "env": {"id": "Pendulum-v1", "squash_actions": True},
    "actors": {"processes": 2, "envs_per_group": 2, "unroll_length": 4},
    "trainer": {"device": "cpu", "amp": "off"},
    "replay": {"size": 4000, "start": 32, "batch": 16, "ratio": 8.0},
}
_RESIDENT = {
    "resident": {"envs": 8, "device": "cpu"},
    "actors": {"envs_per_group": 16, "unroll_length": 4},  # 16: the default
}
_SAC = {"loss": {"kind": "sac"}, "policy": {"std_from_observations": True}}
_DDPG = {"loss": {"kind": "ddpg", "memory": "replay", "noise_std": 0.5}}
_DQN = {
    "env": {"id": "CartPole-v1"},
    "loss": {"kind": "dqn", "target_update_every": 10, "epsilon_steps": 50},
    "replay": _PENDULUM["replay"] | {"n_steps": 3},
}


def accounted(summary: dict[str, Any]) -> None:
    dropped = sum(summary["dropped_steps"].values())
    assert summary["env_steps"] == summary["learned_steps"] + dropped
    assert summary["learned_steps"] > 32 and summary["dropped_steps"]["shutdown"] > 0


@pytest.mark.parametrize("settings", [_SAC, _DDPG], ids=["sac", "ddpg"])
def test_actors_get_the_policy_alone_and_a_step_counts_once(tmp_path: Path, settings) -> None:
    run, weights = WholeRun(tmp_path, **_PENDULUM, **settings, run={"max_updates": 20}), set()
    observe = run.faults.observe

    def look(sender: str, receiver: str, frames: list[bytes]) -> None:
        if isinstance(message := decode(frames).message, Weights):
            weights.update(message.tensors)
        observe(sender, receiver, frames)

    run.faults.observe = look
    summary = run.run()
    assert summary["updates"] == 20
    accounted(summary)
    assert weights and not any("value" in name for name in weights)
    saved = run.checkpoint().tensors
    assert "weights/value.weight" in saved and "target/value.weight" in saved
    last = run.lines()[-1]
    assert last["value_loss"] > 0.0
    if settings is _SAC:  # which explores by sampling
        assert last["temperature"] == pytest.approx(
            np.exp(saved["scalars/log_temperature"]), rel=0.1
        )
        assert "target/policy.weight" not in saved

    resumed = WholeRun(tmp_path, resume=True, **_PENDULUM, **settings, run={"max_updates": 25})
    assert resumed.run()["updates"] == 25

    assert len(evaluate(run.path, episodes=1, greedy=True).returns) == 1
    *_, exact, small = compress_run(run.path, "prune=0.5,int8")
    assert exact.artifact.fidelity.agreement == 1.0 and small.artifact.tensors
    export_run(run.path, tmp_path / "policy.onnx")
    policy = aclearn.load(run.path)
    observation = np.array([1.0, 0.0, 0.0], np.float32)
    assert policy.act(observation).shape == (1,) and np.isfinite(policy.value(observation))


def test_the_last_steps_of_resident_environments_are_learned_as_often_as_others(
    tmp_path: Path,
) -> None:
    pytest.importorskip("aclearn.resident")
    given: dict[str, Any] = {
        **_PENDULUM,
        **_SAC,
        "resident": {"envs": 64, "device": "cpu"},
        "actors": {"envs_per_group": 16, "unroll_length": 8},
        "replay": {"size": 4000, "start": 512, "batch": 64, "ratio": 1.0},
    }
    summary = WholeRun(tmp_path, **given, run={"max_env_steps": 1024}).run()
    # two rollouts of 512 steps; from the second on each step is drawn once
    assert (summary["env_steps"], summary["updates"]) == (1024, 8)


@pytest.mark.parametrize("settings", [_SAC, _DQN], ids=["sac", "dqn"])
def test_resident_environments_fill_the_memory_and_a_resumed_run_has_the_same_bits(
    tmp_path: Path, settings
) -> None:
    pytest.importorskip("aclearn.resident")
    given = {**_PENDULUM, **_RESIDENT, **settings}
    given["replay"] = given["replay"] | {"prioritised": True}
    whole = WholeRun(tmp_path / "whole", **given, run={"max_updates": 48})
    summary = whole.run()
    assert summary["updates"] == 48
    accounted(summary)
    broken = tmp_path / "broken"
    WholeRun(broken, **given, run={"max_updates": 32}).run()
    resumed = WholeRun(broken, resume=True, **given, run={"max_updates": 48})
    resumed.run()
    # a step that was not drawn before the end counts as dropped, so it is never learned for the
    # first time
    counted = {"totals", "replay/drawn", "random/torch"}
    expected, found = whole.checkpoint().tensors, resumed.checkpoint().tensors
    for name in expected.keys() - counted:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert any(name.startswith("target/") for name in expected)
    priorities = expected["replay/priorities"]
    assert len(np.unique(priorities[priorities > 0.0])) > 100, "errors have set them"
