"""Whole runs of PPO on a tiny synthetic market that rises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclearn.types import Unroll
from tests.support.whole_run import WholeRun

_VECTOR, _SINGLE = (f"aclearn.envs.trading:Trading{kind}Env" for kind in ("Vector", ""))
_KWARGS: dict[str, Any] = {
    "market": {"synthetic": {"stocks": 2, "days": 120, "seed": 4, "annual_drift": 3.0}},
    "periods": {
        "train": ["2020-03-02", "2020-04-30"],
        "validation": ["2020-05-01", "2020-06-10"],
    },
    "indicators": ["rsi_14"],
    "window": 10,
    "h_max": 1000,
}


def _run(folder: Path, env_id: str, updates: int, **groups: Any) -> WholeRun:
    folder.mkdir()
    info = ["total_return", "equal_weight_return"]
    return WholeRun(
        folder,
        run={"max_updates": updates},
        env={"id": env_id, "kwargs": _KWARGS, "info_metrics": info},
        policy={"architecture": "mlp", "hidden": [16]},
        actors={"processes": 1, "envs_per_group": 16, "unroll_length": 10},
        trainer={"unrolls_per_batch": 1, "epochs": 4, "minibatches": 4},
        loss={"kind": "ppo", "normalise_returns": True},
        optimiser={"learning_rate": 0.01},
        **groups,
    )


def test_actors_learn_from_a_group_as_from_single_environments(
    tmp_path: Path, learned: list[list[Unroll]]
) -> None:
    for name, env_id in (("group", f"vector:{_VECTOR}"), ("single", _SINGLE)):
        _run(tmp_path / name, env_id, 32).run()
    half = len(learned) // 2
    assert half == 2
    for ours, theirs in zip(learned[:half], learned[half:], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a.rewards, b.rewards)
            for leaf, seen in a.observations.items():
                np.testing.assert_array_equal(seen, b.observations[leaf])


def test_ppo_learns_to_hold_what_rises_and_is_judged_on_the_validation_period(
    tmp_path: Path,
) -> None:
    judge = {"every_steps": 1000, "episodes": 16, "env": {"kwargs": {"period": "validation"}}}
    run = _run(tmp_path / "r", f"vector:{_VECTOR}", 240, evaluator=judge)
    summary = run.run()
    lines = [line for line in run.lines() if line.get("info_total_return") is not None]
    assert lines[-1]["info_total_return"] > lines[0]["info_total_return"] + 0.02
    # rewards are shares of the initial cash
    assert lines[-1]["info_total_return"] == pytest.approx(lines[-1]["return_mean_100"], abs=1e-3)
    judged = [line["evaluator_return_mean"] for line in lines]
    assert summary["evaluator_evaluations"] >= 2 and judged[-1] > judged[0] + 0.02
