"""The two parts of importance ratios in a trainer's batches: by kept weights, as metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from aclearn.config import config_of_keys
from aclearn.envs import read_spec
from aclearn.policies.network import PolicyNetwork, load_tensors
from services.trainer import build
from services.trainer.gauges import CorrectionLog
from tests.support.unrolls import quiet_unroll

KEYS = {
    "env.id": "CartPole-v1",
    "policy.hidden": [16],
    "actors.unroll_length": 5,
    "compressor.chain": ["int8", "onnx"],
    "trainer.device": "cpu",
    "trainer.amp": "off",
    "optimiser.learning_rate": 0.1,
}


def unroll_of():
    """5 steps of 4 environments of version 0."""
    rng = np.random.default_rng(1)
    return quiet_unroll(
        rng.normal(size=(6, 4, 4)).astype(np.float32),
        actions=rng.integers(0, 2, (5, 4)).astype(np.int32),
        behaviour_log_prob=rng.uniform(-0.9, -0.5, (5, 4)).astype(np.float32),
        rewards=np.ones((5, 4), np.float32),
    )


def trainer_of(**keys):
    config = config_of_keys({**KEYS, **keys})
    trainer = build.make_trainer(config, read_spec(config.env))
    trainer.publish()
    return trainer


def learn(trainer, unroll):
    """Learn a batch of one unroll; the weights before it."""
    before = trainer.learner.tensors()
    worker, observation = trainer.learner.own_worker, trainer.learner.architecture.observation
    steps = unroll.valid.size
    at = trainer.counters.batches
    after = (at + 1) * steps
    assert trainer.account.admit("actor", at, at * steps, after, {}, steps) is None
    trainer.learn(worker.assemble([unroll], observation), worker)
    return before


def log_probs(trainer, tensors, unroll) -> np.ndarray:
    """log π(a) of the unroll's steps by these weights."""
    network = PolicyNetwork(trainer.learner.architecture, seed=0)
    load_tensors(network, tensors)
    observations = torch.from_numpy(unroll.observations["observation"][:-1])
    with torch.no_grad():
        logits = torch.stack(
            [network.step({"observation": row}).parameters for row in observations]
        )
    actions = torch.from_numpy(unroll.actions).long()[..., None]
    return logits.log_softmax(-1).gather(-1, actions)[..., 0].double().numpy()


def k3(log_ratios: np.ndarray) -> float:
    return float(np.mean(np.exp(log_ratios) - 1.0 - log_ratios))


@pytest.mark.parametrize(
    "keys",
    [
        {"trainer.split_ratios": True},
        {"correctors": ["vtrace", {"ratio_mask": {"part": "gap", "low": 0.9, "high": 1.1}}]},
    ],
)
def test_an_older_versions_ratio_is_split_into_gap_and_drift(keys) -> None:
    trainer = trainer_of(**keys)
    first = learn(trainer, unroll_of())
    unroll = unroll_of()  # of version 0 too, now one behind
    second = learn(trainer, unroll)

    acting, behaviour = log_probs(trainer, first, unroll), unroll.behaviour_log_prob.astype(float)
    drift = log_probs(trainer, second, unroll) - acting
    gap = acting - behaviour
    gauges = trainer.heartbeat_fields()["gauges"]
    assert gauges["lag_mean"] == 1.0 and gauges["split_share"] == 1.0
    assert gauges["gap_kl"] == pytest.approx(k3(gap), rel=1e-3)
    assert gauges["drift_kl"] == pytest.approx(k3(drift), rel=1e-3)
    assert min(k3(gap), k3(drift)) > 1e-4
    if "correctors" in keys:
        outside = np.mean((gap < math.log(0.9)) | (gap > math.log(1.1)))
        assert gauges["gap_masked_share"] == pytest.approx(outside) and 0.0 < outside < 1.0


def test_a_rounded_policy_is_split_by_the_rounded_ones_that_acted() -> None:
    keys = {"policy.hidden": [16, 16], "trainer.split_ratios": True, "trainer.as_actors": True}
    trainer = trainer_of(**keys)
    learn(trainer, unroll_of())  # of the present version: nothing has drifted
    gauges = trainer.heartbeat_fields()["gauges"]
    assert gauges["drift_kl"] == pytest.approx(0.0, abs=1e-12) and gauges["gap_kl"] > 1e-4


def test_steps_of_versions_that_are_not_kept_are_all_drift() -> None:
    trainer = trainer_of(**{"trainer.split_ratios": True, "trainer.kept_weights_bytes": 0})
    learn(trainer, unroll_of())
    older = replace(unroll_of(), versions=np.array([0, 0, 1, 1, 1]))
    learn(trainer, older)
    gauges = trainer.heartbeat_fields()["gauges"]
    assert gauges["split_share"] == pytest.approx(0.6)
    assert math.isfinite(gauges["gap_kl"])


@pytest.mark.parametrize("keys", [{}, {"correctors": "auto", "compressor.chain": ["fuse", "onnx"]}])
def test_nothing_is_kept_or_measured_where_nothing_asks_for_it(keys) -> None:
    trainer = trainer_of(**keys)
    learn(trainer, unroll_of())
    assert "gap_kl" not in trainer.heartbeat_fields()["gauges"]
    assert trainer.published.of(0) is None and trainer.published.of(1) is not None


def test_what_auto_decides_is_a_metric_and_in_the_log(caplog) -> None:
    caplog.set_level("INFO", "services.trainer.gauges")
    trainer = trainer_of(correctors="auto")
    unroll = unroll_of()
    near = log_probs(trainer, trainer.learner.tensors(), unroll).astype(np.float32)
    learn(trainer, replace(unroll, behaviour_log_prob=near))
    gauges = trainer.heartbeat_fields()["gauges"]
    assert gauges["auto_gap_strength"] == pytest.approx(0.0, abs=1e-6)
    assert gauges["auto_drift_strength"] == 0.0
    assert caplog.messages[-1].startswith("event=correction gap=off drift=off auto_gap_strength=")
    learn(trainer, replace(unroll, behaviour_log_prob=near - 1.0, versions=np.full(5, 1)))
    gauges = trainer.heartbeat_fields()["gauges"]
    assert gauges["auto_gap_strength"] == pytest.approx(1.0)


def test_the_trainer_logs_the_first_decision_and_later_ones_that_differ(caplog) -> None:
    caplog.set_level("INFO", "services.trainer.gauges")
    log = CorrectionLog()
    log.look({"lag_mean": 1.0})  # of another chain

    def look(gap: float, drift: float, batches: int) -> None:
        for _ in range(batches):
            strengths = {"auto_gap_strength": gap, "auto_drift_strength": drift}
            log.look({**strengths, "lag_mean": 3.5, "gap_kl": 0.125, "rho_mean": 1.0})

    look(0.0, 0.01, 250)
    look(0.5, 1.0, 1)
    look(0.0, 0.0, 99)
    look(1.0, 0.0, 5)
    assert [record.getMessage() for record in caplog.records] == [
        f"event=correction gap={gap} drift={drift} auto_gap_strength={strengths[0]} "
        f"auto_drift_strength={strengths[1]} gap_kl=0.125 lag_mean=3.5"
        for gap, drift, strengths in (
            ("off", "off", ("0", "0.01")),
            ("partly", "full", ("0.5", "1")),
            ("full", "off", ("1", "0")),
        )
    ]
