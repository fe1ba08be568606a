"""Whole runs of HDDPG."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import yaml

import aclearn
from aclearn.config import config_from_yaml
from aclearn.errors import ConfigError
from services.commands.compress import compress_run
from services.commands.export import export_run
from services.evaluator.evaluate import evaluate
from services.policy.factory import architecture_of
from services.trainer.build import make_trainer
from tests.support.whole_run import WholeRun

find_env = pytest.importorskip("aclearn.resident").find_env

_HDDPG: dict[str, Any] = {
    "env": {"id": "Pendulum-v1", "squash_actions": True},
    "resident": {"envs": 16, "device": "cpu"},
    "actors": {"envs_per_group": 16, "unroll_length": 50},  # 16: the default
    "trainer": {"device": "cpu", "amp": "off", "minibatches": 2, "epochs": 2},
    "loss": {"kind": "ddpg", "buffer_unrolls": 3, "reward_scale": 0.1},
}


def test_a_resumed_run_of_hddpg_ends_with_the_bits_of_an_unbroken_one(tmp_path: Path) -> None:
    # 6 batches of 16 × 50 steps: an end after the fourth; and of a seventh one update of four
    whole = WholeRun(tmp_path / "whole", **_HDDPG, run={"max_updates": 25})
    summary = whole.run()
    assert summary["updates"] == 25
    # a step counts once, though three batches have it; the step after an end is not valid
    assert summary["env_steps"] == 7 * 16 * 50 - 16
    dropped = summary["dropped_steps"]["max_updates"]
    assert summary["learned_steps"] == summary["env_steps"] - dropped
    assert dropped == pytest.approx(16 * 50 / 2, abs=100)
    assert summary["episodes"] == 16

    broken = tmp_path / "broken"
    WholeRun(broken, **_HDDPG, run={"max_updates": 12}).run()
    resumed = WholeRun(broken, resume=True, **_HDDPG, run={"max_updates": 25})
    again = resumed.run()
    assert again["learned_steps"] == summary["learned_steps"]
    resumed.assert_same_checkpoint(whole)
    expected = whole.checkpoint().tensors
    for name in ("target/value.weight", "optimiser/value.weight/exp_avg", "noise", "fifo/rewards"):
        assert np.abs(expected[name]).max() > 0.0, name

    # other environments begin with an empty buffer; a pruned copy of the policy acts in them
    fewer = _HDDPG | {"resident": {"envs": 12, "device": "cpu", "chain": [{"prune": 0.5}]}}
    assert WholeRun(broken, resume=True, **fewer, run={"max_updates": 29}).run()["updates"] == 29

    # its policy acts alone, nearly without noise
    sampled, greedy = (evaluate(whole.path, episodes=2, greedy=greedy) for greedy in (False, True))
    assert sampled.returns == pytest.approx(greedy.returns, rel=0.1)

    # and is compressed and exported like any other
    *_, exact, pruned = compress_run(whole.path, "prune=0.5,int8")
    assert exact.artifact.fidelity.agreement == 1.0
    assert pruned.artifact.fidelity.kl_mean > exact.artifact.fidelity.kl_mean
    export_run(whole.path, tmp_path / "policy.onnx")
    loaded = aclearn.load(whole.path)
    assert loaded.act(np.array([1.0, 0.0, 0.0], np.float32)).shape == (1,)


def test_the_buffer_counts_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_from_yaml(yaml.safe_dump(_HDDPG | {"policy": {"architecture": "mlp"}}))
    spec = find_env("Pendulum").spec(squash=True)
    trainer = make_trainer(config, spec, threads=1)
    trainer.publish()
    trainer.step(0.0, trainer.make_worker())
    state = trainer.source.state()
    held = sum(array.nbytes for name, array in state.items() if name.startswith("fifo/")) / 16
    trainer.source.close()
    # 150 steps of 27 bytes and their copy; 26 bytes of the account
    buffer, account = 2 * 150 * 27, 150 * 26
    assert 0.4 * (buffer + account) < held < buffer + account
    # 48 of the state, 50 rows and an observation, 8 of the policy; 56 of a step's targets, which
    # are copied twice with it
    each = 48 + 50 * 27 + 12 + 8 + buffer + account + 150 * (56 + 2 * (27 + 56))
    available = 10 * each * 5 // 4 + 10
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=available))
    words = r"16 environments need .*, loss.buffer_unrolls 0.0, .*; at most 10 fit"
    with pytest.raises(ConfigError, match=words):
        make_trainer(config, spec)


def test_actions_that_are_choices_are_refused() -> None:
    config = config_from_yaml(
        yaml.safe_dump(_HDDPG | {"policy": {"architecture": "mlp"}, "env": _HDDPG["env"]})
    )
    with pytest.raises(ConfigError, match=r"loss\.kind: ddpg has a critic of Box actions"):
        architecture_of(config, find_env("CartPole").spec())
