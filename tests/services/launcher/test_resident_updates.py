"""Resident runs whose updates are a graph, in which no decision is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from aclearn.config import config_from_yaml
from aclearn.learning import decisions
from services.trainer.build import make_trainer
from services.trainer.snapshot import Snapshot
from services.trainer.trainer import Trainer
from tests.support.warm_ups import WarmUps

find_env = pytest.importorskip("aclearn.resident").find_env

_RUNS: dict[str, dict[str, Any]] = {
    "actor_critic": {
        "env": {"id": "CartPole-v1", "clip_rewards": True},
        "policy": {"architecture": "mlp", "hidden": [16]},
        "trainer": {"amp": "off", "minibatches": 2, "epochs": 2},
        "loss": {"normalise_advantages": True},
    },
    "ppo": {
        "env": {"id": "CartPole-v1"},
        "policy": {"architecture": "mlp", "hidden": [16], "normalise_observations": True},
        "loss": {"kind": "ppo", "normalise_returns": True, "target_kl": 1e-3},
        "optimiser": {"kind": "adam", "learning_rate": 0.01},
    },
    "hddpg": {
        "env": {"id": "Pendulum-v1", "squash_actions": True},
        "policy": {"architecture": "mlp", "hidden": [16]},
        "loss": {"kind": "ddpg", "buffer_unrolls": 3, "reward_scale": 0.1},
    },
}


def _trained(
    named: str,
    device: str,
    *,
    updates: int = 1000,
    batches: int = 1000,
    start: Snapshot | None = None,
) -> Trainer:
    """A trainer after so many updates or batches, of at most four updates.

    Minibatches of single steps have another order on a GPU.
    """
    settings = {
        "run": {"max_updates": updates},
        "resident": {"envs": 64, "device": device},
        "actors": {"unroll_length": 8},
        "trainer": {"amp": "off", "minibatches": 1, "epochs": 4},
    } | _RUNS[named]
    config = config_from_yaml(yaml.safe_dump(settings))
    env = find_env(config.env.id.removesuffix("-v1"))
    spec = env.spec(squash=config.env.squash_actions)
    incarnation = "a" if start is None else "b"
    trainer = make_trainer(config, spec, incarnation=incarnation, threads=1)
    worker = trainer.make_worker()
    if not decisions.readable(torch.device("cpu")):
        worker = trainer.learner.make_worker(captured=WarmUps())
    if start is not None:
        trainer.restore(start)
    trainer.publish()
    for _ in range(batches):
        if not trainer.over:
            trainer.step(0.0, worker)
    trainer.source.close()
    return trainer


def _assert_trained_alike(one: Trainer, other: Trainer) -> None:
    fields, expected = other.heartbeat_fields(), one.heartbeat_fields()
    assert fields["counters"] == expected["counters"] and fields["dropped"] == expected["dropped"]
    # a ratio is clipped above 1, which it is but for rounding
    gauges, others = (
        {name: value for name, value in of["gauges"].items() if not name.startswith("clipped_")}
        for of in (expected, fields)
    )
    assert others == pytest.approx(gauges, rel=1e-2, abs=1e-4)
    weights = one.learner.tensors()
    for name, values in other.learner.tensors().items():
        np.testing.assert_allclose(values, weights[name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.fixture
def as_a_graph(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets no decision be read from now on."""

    def patch() -> None:
        for module in ("decisions", "minibatches", "optimiser", "moments"):
            monkeypatch.setattr(f"aclearn.learning.{module}.readable", lambda device: False)

    return patch


@pytest.mark.parametrize("named", _RUNS)
def test_they_learn_the_same_as_updates_that_are_read(named: str, as_a_graph) -> None:
    # the last batch has less updates left than it could make
    ordinary = _trained(named, "cpu", updates=18)
    as_a_graph()
    _assert_trained_alike(ordinary, _trained(named, "cpu", updates=18))
    assert ordinary.counters.updates == 18
    assert (ordinary.counters.ended_batches > 0) == (named == "ppo")
    assert named == "ppo" or ordinary.counters.batches == 5


@pytest.mark.parametrize("named", _RUNS)
def test_they_continue_with_the_bits_of_an_unbroken_run(named: str, as_a_graph) -> None:
    as_a_graph()
    first = _trained(named, "cpu", batches=2).snapshot()
    second = _trained(named, "cpu", batches=2, start=first).snapshot()
    whole = _trained(named, "cpu", batches=4).snapshot()
    assert second.tensors.keys() == whole.tensors.keys()
    for name, array in whole.tensors.items():
        np.testing.assert_array_equal(second.tensors[name], array, err_msg=name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("named", _RUNS)
def test_a_gpu_learns_the_same_by_cuda_graphs(named: str, caplog: pytest.LogCaptureFixture) -> None:
    _assert_trained_alike(_trained(named, "cpu", updates=18), _trained(named, "cuda", updates=18))
    assert "capture_failed" not in caplog.text
