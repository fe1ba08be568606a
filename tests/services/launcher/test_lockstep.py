"""Deterministic mode's own parts: what acts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aclearn.config import CompressorConfig, Config, EnvConfig, RunConfig
from aclearn.learning import PublishedWeights, RecentObservations
from aclearn.types import PolicyVersion
from services.launcher.lockstep_actor import LockstepPolicy
from tests.support.compressors import float64_logits, some_observations, some_tensors


def damaging(compressor, monkeypatch) -> set[str]:
    """The kinds of artifacts, "chain" or "plain", that are damaged on their way to who acts."""
    damaged, given = set(), compressor.newer_than

    def newer_than(known, *, plain=False):
        artifact = given(known, plain=plain)
        spoilt = artifact is not None and ("plain" if plain else "chain") in damaged
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
    policy, recent = LockstepPolicy(config, tools.flat), RecentObservations(frame_stack=1)
    damaged = damaging(policy._compressor, monkeypatch)
    observations, told = some_observations(tools.flat, 5), []
    for version, kinds in enumerate([set(), {"chain"}, {"chain", "plain"}, set()]):
        damaged.clear()
        damaged |= kinds
        newest = PublishedWeights(PolicyVersion(0, version), some_tensors(tools.flat, version))
        policy.take(newest, recent)
        told.append((policy.at.version, policy.chain, policy.refused))
        # what acts is what it says
        acting = some_tensors(tools.flat, policy.at.version)
        np.testing.assert_allclose(
            policy.logits(observations),
            float64_logits(tools.flat, acting, observations),
            rtol=1e-5,
            atol=1e-5,
        )
    # where both are refused the old policy goes on
    assert told == [(0, "onnx", 0), (1, "fuse>onnx", 1), (1, "fuse>onnx", 3), (3, "onnx", 3)]
    assert policy.gauges() == {"policy_swaps": 3.0, "policy_refused": 3.0}
    assert sum("event=policy_refused" in record.message for record in caplog.records) == 3
