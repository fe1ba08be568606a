"""Deterministic mode's own parts: what acts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from aclearn.config import (
    ActorsConfig,
    CompressorConfig,
    Config,
    EnvConfig,
    PolicyConfig,
    RunConfig,
)
from aclearn.launch import StopFlag
from aclearn.learning import PublishedWeights, RecentObservations
from aclearn.metrics import MetricsAggregator
from aclearn.runs import RunFolder, load_newest
from aclearn.types import PolicyVersion
from services.launcher.local_run import train
from services.launcher.lockstep_actor import LockstepActor, LockstepPolicy
from tests.support.acting import parameters_of
from tests.support.compressors import float64_parameters, some_observations, some_tensors


def damaging(compressor, monkeypatch) -> set[str]:
    """The kinds of artifacts, "chain" or "uncompressed", that arrive damaged."""
    damaged, given = set(), compressor.newer_than

    def newer_than(known, *, uncompressed=False):
        artifact = given(known, uncompressed=uncompressed)
        spoilt = artifact is not None and ("uncompressed" if uncompressed else "chain") in damaged
        return replace(artifact, digest="0" * 32) if spoilt else artifact

    monkeypatch.setattr(compressor, "newer_than", newer_than)
    return damaged


def test_in_place_of_a_refused_artifact_the_uncompressed_policy_acts(
    tools, monkeypatch, caplog
) -> None:
    config = Config(
        run=RunConfig(name="r", deterministic=True),
        env=EnvConfig(id="CartPole-v1"),
        compressor=CompressorConfig(chain=["onnx"]),
    )
    policy, recent = (
        LockstepPolicy(config, tools.flat),
        RecentObservations(tools.flat_unrolls.env.observation),
    )
    damaged = damaging(policy._compressor, monkeypatch)
    observations, told = some_observations(tools.flat, 5), []
    for version, kinds in enumerate([set(), {"chain"}, {"chain", "uncompressed"}, set()]):
        damaged.clear()
        damaged |= kinds
        newest = PublishedWeights(PolicyVersion(0, version), some_tensors(tools.flat, version))
        policy.take(newest, recent)
        told.append((policy.at.version, policy.acting.chain, policy.refused))
        # what acts is what it says
        acting = some_tensors(tools.flat, policy.at.version)
        np.testing.assert_allclose(
            parameters_of(policy.acting.executable, observations),
            float64_parameters(tools.flat, acting, observations),
            rtol=1e-5,
            atol=1e-5,
        )
    # where both are refused the old policy goes on
    assert told == [(0, "onnx", 0), (1, "fuse>onnx", 1), (1, "fuse>onnx", 3), (3, "onnx", 3)]
    assert policy.gauges() == {"policy_swaps": 3.0, "policy_refused": 3.0}
    assert sum("event=policy_refused" in record.message for record in caplog.records) == 3


def test_weights_are_saved_though_the_heartbeat_fails(tmp_path, monkeypatch) -> None:
    observe_heartbeat, heartbeats = MetricsAggregator.observe_heartbeat, []

    def observe(view, role, *rest) -> None:
        heartbeats.append(role)
        # of the third update, and at the end
        if role == "trainer" and heartbeats.count(role) in (3, 4):
            raise ZeroDivisionError(f"heartbeat {heartbeats.count(role)}")
        observe_heartbeat(view, role, *rest)

    closed = []
    close = LockstepActor.close
    monkeypatch.setattr(MetricsAggregator, "observe_heartbeat", observe)
    monkeypatch.setattr(LockstepActor, "close", lambda actor: (closed.append(1), close(actor)))
    run = RunConfig(name="r", dir=str(tmp_path), deterministic=True, max_updates=9)
    with pytest.raises(ZeroDivisionError, match="heartbeat 4"):
        train(
            Config(
                run=run,
                env=EnvConfig(id="CartPole-v1"),
                policy=PolicyConfig(architecture="mlp"),
                actors=ActorsConfig(runtime="torch"),
            ),
            resume=False,
            stop=StopFlag(),
        )
    folder = RunFolder.open(tmp_path / "r")
    assert load_newest(folder.checkpoints_dir).state["counters"]["updates"] == 3
    summary = json.loads(folder.summary_path.read_text())
    assert (summary["updates"], summary["reason"]) == (3, "failed")
    assert closed == [1]
