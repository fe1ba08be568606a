"""Environments with all kinds of spaces are learned: by actors, predictors and artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import space_envs
from tests.support.whole_run import WholeRun

_INT8 = {"chain": [{"prune": 0.5}, "int8", "onnx"], "every_s": 0.0625, "max_kl": None}


def _train(folder: Path, env: dict[str, Any], **groups: Any) -> WholeRun:
    shared: dict[str, dict[str, Any]] = {
        "env": env,
        "policy": {"hidden": [32]},
        "optimiser": {"learning_rate": 0.02},
        "loss": {"entropy_cost": 0.0},
    }
    own = {name: shared[name] | groups.get(name, {}) for name in shared}
    run = WholeRun(folder, **groups | own)
    run.run(most_rounds=40_000)
    assert not run.refused
    assert run.heartbeats["actor-0"].gauges["env_faults"] == 0.0
    return run


_ACTORS = {"processes": 1, "envs_per_group": 8, "unroll_length": 8}
_MASKED = {"action_mask": "info"}


#: Environment, its settings, and those of the run that learns it.
_LEARNED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "choices, int8": ("Match", {}, {"compressor": _INT8}),
    "switches": ("Switches", {}, {}),
    "numbers, predictor": ("Reach", {}, {"actors": _ACTORS | {"inference": "predictor"}}),
    "masks, predictor": ("Gates", _MASKED, {"actors": _ACTORS | {"inference": "predictor"}}),
    "masks choice by choice, int8": ("Locks", _MASKED, {"compressor": _INT8}),
    "masks, ppo in shuffled minibatches": (
        "Gates",
        _MASKED,
        {"loss": {"kind": "ppo"}, "trainer": {"minibatches": 2, "epochs": 2}},
    ),
    "masks, action values": (
        "Gates",
        _MASKED,
        {"policy": {"critic": "q"}, "correctors": ["retrace", "importance_sampling"]},
    ),
    "squashed numbers, on policy": (
        "Reach",
        {"squash_actions": True},
        {"actors": _ACTORS | {"wait_for_weights": True}, "trainer": {"unrolls_per_batch": 1}},
    ),
}


@pytest.mark.parametrize("name", _LEARNED)
def test_most_of_the_best_return_is_learned(tmp_path: Path, name: str) -> None:
    env, settings, groups = _LEARNED[name]
    run = _train(
        tmp_path,
        {"id": f"tests.support.space_envs:{env}"} | settings,
        run={"max_updates": 500, "target_return": 0.7 * getattr(space_envs, env).best},
        **{"actors": _ACTORS} | groups,
    )
    found = run.summary()
    assert found["reached_target_at_s"] is not None, found
    clipped = run.heartbeats["actor-0"].gauges.get("clipped_action_share")
    assert (clipped is not None and 0.0 < clipped < 1.0) == (name == "numbers, predictor")
    if "ppo" in name:  # an action that another step's mask forbids would be infinitely far
        assert 0.0 <= found["proximal_kl"] < 1.0
    if "on policy" in name:
        ratios = [line["rho_mean"] for line in run.lines() if line.get("rho_mean") is not None]
        assert ratios and ratios == pytest.approx([1.0] * len(ratios), abs=1e-3)


def test_a_network_of_ones_own_is_trained_with_normalisers(tmp_path: Path) -> None:
    run = _train(
        tmp_path,
        {"id": "tests.support.space_envs:Reach"},
        policy={
            "architecture": "tests.support.own_networks:Plain",
            "hidden": None,
            "normalise_observations": True,
        },
        loss={"normalise_returns": True},
        actors=_ACTORS,
        run={"max_updates": 60},
    )
    tensors = run.checkpoint().tensors
    # a choice of 3 and one of 2, each as likely as the others
    shown = [1 / 3] * 3 + [1 / 2] * 2
    np.testing.assert_allclose(tensors["weights/input.observation.mean"], shown, atol=0.05)
    assert tensors["weights/value.mean"] > 1.0  # of 2 points a step


_OWN = {"architecture": "tests.support.own_networks:OfLeaves", "hidden": None}


@pytest.mark.parametrize("policy", [{"architecture": "minigrid", "hidden": [32]}, _OWN])
@pytest.mark.parametrize("inference", ["local", "predictor", "int8"])
def test_every_leaf_reaches_all_roles(tmp_path: Path, inference: str, policy: Any) -> None:
    # every policy that a role loads is compared with the network's layers on all leaves
    chain = ["onnx"] if policy is _OWN else _INT8["chain"]
    groups = {"compressor": _INT8 | {"chain": chain}} if inference == "int8" else {}
    asked = {"inference": "predictor"} if inference == "predictor" else {}
    run = _train(
        tmp_path,
        {"id": "tests.support.space_envs:Senses", "ignore": ["note"]},
        policy=policy,
        actors=_ACTORS | asked,
        run={"max_updates": 10},
        **groups,
    )
    assert run.summary()["updates"] == 10
    if inference == "int8":
        assert run.passed["ArtifactReply"] > 0


def test_actions_that_are_masked_do_not_count_in_the_comparison_or_for_a_student(
    tmp_path: Path,
) -> None:
    # the link prefers what is never allowed; the student starts from its weights
    chain = ["tests.support.toys.illegal_link:Illegal", {"distill": {"steps": 1}}, "onnx"]
    run = _train(
        tmp_path,
        {"id": "tests.support.space_envs:Wall", "action_mask": "info"},
        actors=_ACTORS,
        run={"max_updates": 12},
        compressor=_INT8 | {"chain": chain},
    )
    told = run.heartbeats["compressor-0"]
    assert told.gauges["kl_observations"] > 0
    assert told.gauges["kl_mean"] < 1 and told.gauges["distill_kl"] < 1
    assert told.counters["artifacts"] > 5
