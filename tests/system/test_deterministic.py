"""Deterministic mode: the seed alone decides the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aclearn.runs import Checkpoint, load_best, load_newest
from tests.support.system import CARTPOLE, PONG, Run, System

_MODE = {"deterministic": True, "max_updates": 50}


def _finished(run: Run) -> Checkpoint:
    assert run.wait() == 0, run.diagnosis()
    assert run.check_account()["updates"] == 50
    checkpoint = load_newest(run.folder / "checkpoints")
    assert checkpoint is not None
    return checkpoint


_CHAIN: list[Any] = [{"prune": 0.5}, "distill", "int8", "onnx"]


@pytest.mark.parametrize(
    ("base", "chain"),
    [(CARTPOLE, []), (CARTPOLE, _CHAIN), (PONG, [])],
    ids=["cartpole", "cartpole-chain", "pong"],
)
def test_two_runs_with_one_seed_end_with_the_same_bits_and_another_seed_does_not(
    system: System, base: dict[str, Any], chain: list[Any]
) -> None:
    # the fiftieth update is in the midst of a batch
    groups = {"compressor": {"chain": chain}, "trainer": {"minibatches": 2, "epochs": 2}}
    first, again, other = (
        system.train(system.config(base, name, run=_MODE | {"name": name, "seed": seed}, **groups))
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    a, b, c = _finished(first), _finished(again), _finished(other)
    assert any(name.startswith("weights/") for name in a.tensors)
    assert a.tensors.keys() == b.tensors.keys() == c.tensors.keys()
    for name, tensor in a.tensors.items():
        assert tensor.dtype == b.tensors[name].dtype
        assert tensor.tobytes() == b.tensors[name].tobytes(), name
    weights = [name for name in a.tensors if name.startswith("weights/")]
    assert all(
        not np.array_equal(a.tensors[n], c.tensors[n]) for n in weights if a.tensors[n].any()
    )
    assert first.summary()["env_steps"] == again.summary()["env_steps"]


def test_the_best_checkpoint_is_decided_by_the_seed_and_can_be_played(system: System) -> None:
    # an update learns from 40 steps, so that 200 updates are 100 episodes of up to 80 steps: a
    # policy that has just begun falls after some 20. After each batch it is looked whether the mean
    # of a hundred is the highest.
    mode = {"deterministic": True, "max_updates": 200, "seed": 3}
    found = []
    for name, every_s in (("first", 0.05), ("again", 5.0)):
        run = system.train(
            system.config(CARTPOLE, name, run=mode | {"name": name, "checkpoint_every_s": every_s})
        )
        assert run.wait() == 0, run.diagnosis()
        summary, best = run.check_account(), load_best(run.folder / "checkpoints")
        assert best is not None
        assert 0 < best.label <= 200 and summary["episodes"] >= 100
        # each step gives 1: the returns of a hundred episodes are no more than the steps so far
        assert 100 * summary["best_return"] < best.state["ledger"]["learned_steps"] + 1
        assert best.state["return_mean_100"] == summary["best_return"]
        found.append((best.label, summary["best_return"]))
        assert run.last()["best_return"] == summary["best_return"]
        assert run.lines()[0]["best_return"] is None
    assert found[0] == found[1]
    play = system.command("evaluate", run.folder, "--episodes", "3", "--best")
    assert play.wait() == 0, play.output
    assert f"after {best.label} updates" in play.output
