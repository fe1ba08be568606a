"""Deterministic mode: the seed alone decides the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from system_harness import CARTPOLE, PONG, Run, System

from aclearn.runs import Checkpoint, load_newest

_MODE = {"deterministic": True, "max_updates": 50}


def _finished(run: Run) -> Checkpoint:
    assert run.wait(within_s=90.0) == 0, run.diagnosis()
    assert run.check_books()["updates"] == 50
    checkpoint = load_newest(run.folder / "checkpoints")
    assert checkpoint is not None
    return checkpoint


_CHAIN: list[Any] = [{"prune": 0.5}, "distill", "int8", "onnx"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("base", "chain"),
    [(CARTPOLE, []), (CARTPOLE, _CHAIN), (PONG, [])],
    ids=["cartpole", "cartpole-chain", "pong"],
)
def test_two_runs_with_one_seed_end_with_the_same_bits_and_another_seed_does_not(
    system: System, base: dict[str, Any], chain: list[Any]
) -> None:
    groups = {"compressor": {"chain": chain}}
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
