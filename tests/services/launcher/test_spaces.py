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


@pytest.mark.parametrize(
    ("env", "inference"),
    [
        ("Match", "int8"),
        ("Switches", "local"),
        ("Reach", "predictor"),
        ("Gates", "local"),
        ("Gates", "predictor"),
        ("Locks", "int8"),
    ],
)
def test_most_of_the_best_return_is_learned(tmp_path: Path, env: str, inference: str) -> None:
    groups = {"compressor": _INT8} if inference == "int8" else {}
    asked = {"inference": "predictor"} if inference == "predictor" else {}
    best = getattr(space_envs, env).best
    masked = {"action_mask": "info"} if env in ("Gates", "Locks") else {}
    run = _train(
        tmp_path,
        {"id": f"tests.support.space_envs:{env}"} | masked,
        actors=_ACTORS | asked,
        run={"max_updates": 500, "target_return": 0.7 * best},
        **groups,
    )
    _assert_learned(run)
    clipped = run.heartbeats["actor-0"].gauges.get("clipped_action_share")
    assert (clipped is not None and 0.0 < clipped < 1.0) == (env == "Reach")


def _assert_learned(run: WholeRun) -> None:
    found = run.summary()
    assert found["reached_target_at_s"] is not None, found


def test_ppo_learns_with_masks_in_shuffled_minibatches(tmp_path: Path) -> None:
    run = _train(
        tmp_path,
        {"id": "tests.support.space_envs:Gates", "action_mask": "info"},
        actors=_ACTORS,
        loss={"kind": "ppo"},
        trainer={"minibatches": 2, "epochs": 2},
        run={"max_updates": 500, "target_return": 0.7 * space_envs.Gates.best},
    )
    _assert_learned(run)
    # an action that another step's mask forbids would be infinitely far
    assert 0.0 <= run.summary()["proximal_kl"] < 1.0


def test_a_critic_of_action_values_learns_with_masks(tmp_path: Path) -> None:
    run = _train(
        tmp_path,
        {"id": "tests.support.space_envs:Gates", "action_mask": "info"},
        actors=_ACTORS,
        policy={"hidden": [32], "critic": "q"},
        correctors=["retrace", "importance_sampling"],
        run={"max_updates": 500, "target_return": 0.7 * space_envs.Gates.best},
    )
    _assert_learned(run)


def test_squashed_numbers_are_learned_by_ratios_that_are_one_on_policy(tmp_path: Path) -> None:
    run = _train(
        tmp_path,
        {"id": "tests.support.space_envs:Reach", "squash_actions": True},
        actors=_ACTORS | {"wait_for_weights": True},
        trainer={"unrolls_per_batch": 1},
        run={"max_updates": 500, "target_return": 0.7 * space_envs.Reach.best},
    )
    _assert_learned(run)
    ratios = [line["rho_mean"] for line in run.lines() if line.get("rho_mean") is not None]
    assert ratios and ratios == pytest.approx([1.0] * len(ratios), abs=1e-3)


def test_a_network_of_ones_own_learns_choices_and_numbers_with_normalisers(tmp_path: Path) -> None:
    network = {"architecture": "tests.support.own_networks:Plain", "hidden": None}
    run = _train(
        tmp_path,
        {"id": "tests.support.space_envs:Reach"},
        policy=network | {"normalise_observations": True},
        loss={"normalise_returns": True},
        actors=_ACTORS,
        run={"max_updates": 500, "target_return": 0.7 * space_envs.Reach.best},
    )
    _assert_learned(run)
    tensors = run.checkpoint().tensors
    # a choice of 3 and one of 2, each as likely as the others
    shown = [1 / 3] * 3 + [1 / 2] * 2
    np.testing.assert_allclose(tensors["weights/input.observation.mean"], shown, atol=0.05)
    assert tensors["weights/value.mean"] > 1.0  # of 2 points a step


@pytest.mark.parametrize("inference", ["local", "predictor", "int8"])
def test_every_leaf_reaches_all_roles(tmp_path: Path, inference: str) -> None:
    # every policy that a role loads is compared with the network's layers on all leaves
    groups = {"compressor": _INT8} if inference == "int8" else {}
    asked = {"inference": "predictor"} if inference == "predictor" else {}
    run = _train(
        tmp_path,
        {"id": "tests.support.space_envs:Senses", "ignore": ["note"]},
        policy={"architecture": "minigrid", "hidden": [32]},
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
