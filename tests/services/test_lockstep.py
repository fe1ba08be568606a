"""Deterministic mode's own parts: which checkpoint is the best, and what acts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from made_compressors import float64_logits, some_observations, some_tensors

from aclearn.config import CompressorConfig, Config, EnvConfig, RunConfig
from aclearn.learning import PublishedWeights, RecentObservations
from aclearn.policies import PolicyVersion
from services.lockstep import BestSoFar, LockstepPolicy


def test_the_best_needs_a_hundred_episodes_and_is_kept_until_a_better_one_comes() -> None:
    best = BestSoFar()
    told = [
        (updates, best.beaten_by(line, episodes_in_mean=episodes), best.mean_return)
        for updates, mean, episodes in [
            (0, None, 0),
            (10, 9.0, 99),  # not a hundred episodes yet
            (20, 5.0, 100),
            (519, 6.0, 100),  # better, but only 499 updates later
            (520, 5.0, 100),  # no better
            (521, 6.0, 100),
            (1021, 7.0, 100),
        ]
        if (line := {"return_mean_100": mean, "updates": updates})
    ]
    assert told == [
        (0, False, None),
        (10, False, None),
        (20, True, 5.0),
        (519, False, 5.0),
        (520, False, 5.0),
        (521, True, 6.0),
        (1021, True, 7.0),
    ]


def test_a_continued_run_keeps_the_best_that_it_had() -> None:
    best = BestSoFar(7.0)
    assert not best.beaten_by({"return_mean_100": 7.0, "updates": 3}, episodes_in_mean=100)
    assert best.beaten_by({"return_mean_100": 7.5, "updates": 3}, episodes_in_mean=100)


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
