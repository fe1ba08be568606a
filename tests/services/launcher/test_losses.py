"""Whole runs with each loss: their seed decides them, they continue, and they learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aclearn.types import Unroll
from tests.support.whole_run import WholeRun

_PASSES = {"minibatches": 2, "epochs": 4}


def _run(folder: Path, kind: str, updates: int, *, resume: bool = False) -> WholeRun:
    folder.mkdir(exist_ok=True)
    return WholeRun(
        folder,
        resume=resume,
        run={"max_updates": updates},
        policy={"architecture": "mlp", "hidden": [16]},
        actors={"processes": 1, "envs_per_group": 8, "unroll_length": 16},
        trainer={"unrolls_per_batch": 1} | ({} if kind == "a2c" else _PASSES),
        loss={"kind": kind},
        # a2c's own rmsprop_tf begins with a mean square of 1: it hardly moves in so few updates
        optimiser={"kind": "adam", "learning_rate": 0.01 if kind == "a2c" else 0.004},
        monitor={"heartbeat_every_s": 0.25},
    )


@pytest.mark.parametrize(("processes", "unrolls"), [(2, 4), (3, 3)])
def test_actors_that_wait_for_weights_make_on_policy_data(
    tmp_path: Path, learned: list[list[Unroll]], processes: int, unrolls: int
) -> None:
    run = WholeRun(
        tmp_path,
        run={"max_updates": 40},
        actors={"processes": processes, "wait_for_weights": True},
        trainer={"unrolls_per_batch": unrolls, "minibatches": 2, "epochs": 2},
        loss={"kind": "ppo"},
    )
    summary = run.run()
    assert summary["updates"] == 40
    assert len(learned) == 10
    for version, batch in enumerate(learned):
        assert {int(v) for unroll in batch for v in unroll.versions} == {version}
    assert summary["lag_max"] == 0.0
    assert summary["effective_sample_share"] > 0.99


@pytest.mark.parametrize("kind", ["ppo", "impact", "a2c"])
def test_a_seed_decides_a_run_which_continues_and_learns(tmp_path: Path, kind: str) -> None:
    # impact: after 300 updates the newest 100 episodes are nearly all, 28 to 43 over eight seeds
    part = {"ppo": 60, "impact": 100, "a2c": 10}[kind]
    weights = []
    for name in ("one", "other"):
        run = _run(tmp_path / name, kind, part)
        run.run()
        tensors = run.checkpoint().tensors
        weights.append({k: v for k, v in tensors.items() if k.startswith(("weights", "target"))})
    assert len(weights[0]) == len(weights[1]) > 0
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name])
    assert any(name.startswith("target") for name in weights[0]) == (kind == "impact")

    summary = _run(tmp_path / "one", kind, 5 * part, resume=True).run()
    assert (summary["updates"], summary["generation"]) == (5 * part, 1)
    # a random policy balances the pole for some 22 steps
    assert summary["return_mean_100"] > 30.0
    assert summary["entropy"] < 0.69
    assert ("proximal_kl" in summary) == (kind != "a2c")
    assert summary["ended_batches"] == 0
