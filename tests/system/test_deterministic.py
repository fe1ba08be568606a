"""Deterministic mode: the seed alone determines the weights, in any process."""

from __future__ import annotations

from aclearn.runs import Checkpoint, load_newest
from tests.support.system import PONG, Run, System

_CHAIN = [{"prune": 0.5}, "distill", "int8", "onnx"]


def _finished(run: Run) -> Checkpoint:
    assert run.wait() == 0, run.diagnosis()
    assert run.check_account()["updates"] == 50
    checkpoint = load_newest(run.folder / "checkpoints")
    assert checkpoint is not None
    return checkpoint


def test_two_processes_with_one_seed_end_with_the_same_bits(system: System) -> None:
    first, again = (
        system.train(
            system.config(
                PONG,
                name,
                run={"deterministic": True, "max_updates": 50, "name": name, "seed": 1},
                compressor={"chain": _CHAIN},
                # the fiftieth update is in the middle of a batch
                trainer={"minibatches": 2, "epochs": 2},
            )
        )
        for name in ("first", "again")
    )
    a, b = _finished(first), _finished(again)
    assert any(name.startswith("weights/") for name in a.tensors)
    assert a.tensors.keys() == b.tensors.keys()
    for name, tensor in a.tensors.items():
        assert tensor.dtype == b.tensors[name].dtype
        assert tensor.tobytes() == b.tensors[name].tobytes(), name
    assert first.summary()["env_steps"] == again.summary()["env_steps"]
