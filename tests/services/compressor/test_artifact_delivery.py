"""Artifacts on their way to actors: requested, damaged, refused, known already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aclearn.types import PolicyVersion
from aclearn.wire import (
    ArtifactReply,
    ArtifactRequest,
    NoNewerWeights,
)
from services.compressor.server import ArtifactServer
from tests.support.compressors import (
    Pulling,
    float64_parameters,
    make,
    some_observations,
    some_tensors,
)
from tests.support.contexts import seen


def test_actors_pull_artifacts_and_keep_the_old_one_when_one_is_damaged(roles, tools) -> None:
    pulling, compressor = Pulling(roles, tools), make(tools, ["int8", "onnx"])
    observations = some_observations(tools.flat, 40)
    compressor.observe(seen(observations))
    compressor.compress(PolicyVersion(2, 1), some_tensors(tools.flat, 1))
    pulling.pull(compressor)
    assert pulling.client.at == PolicyVersion(2, 1)
    assert pulling.client.acting.chain == compressor.artifact.chain != "none"
    before = pulling.runtime.parameters(observations)

    compressor.compress(PolicyVersion(2, 2), some_tensors(tools.flat, 2))
    whole = compressor.artifact
    damaged = {name: tensor.copy() for name, tensor in whole.tensors.items()}
    damaged["hidden.0.weight"].reshape(-1).view(np.uint8)[3] ^= 1
    compressor.artifact = replace(whole, tensors=damaged)
    pulling.pull(compressor)
    assert (pulling.client.at, pulling.client.refused) == (PolicyVersion(2, 1), 1)
    np.testing.assert_allclose(
        pulling.runtime.parameters(observations), before, rtol=1e-5, atol=1e-6
    )

    # the calibrated ranges still hold for weights that have moved a little
    old, step = some_tensors(tools.flat, 1), some_tensors(tools.flat, 3)
    tensors = {name: old[name] + np.float32(0.05) * step[name] for name in old}
    compressor.compress(PolicyVersion(2, 3), tensors)
    pulling.pull(compressor)
    assert pulling.client.at == PolicyVersion(2, 3)
    expected = float64_parameters(tools.flat, tensors, observations)
    np.testing.assert_allclose(pulling.runtime.parameters(observations), expected, atol=0.05)
    # an artifact of an older generation or version has no effect
    compressor.artifact = whole
    assert compressor.newer_than(pulling.client.id) is None


def test_a_role_that_refuses_the_last_artifact_acts_on_the_uncompressed_policy(
    roles, tools
) -> None:
    pulling, compressor = Pulling(roles, tools), make(tools, ["int8", "onnx"])
    observations, tensors = some_observations(tools.flat, 40), some_tensors(tools.flat, 1)
    compressor.observe(seen(observations))
    compressor.compress(PolicyVersion(0, 1), tensors)
    # as on a CPU with other int8 arithmetic: sealed, but its probe fails
    other = replace(compressor.artifact, probe_parameters=compressor.artifact.probe_parameters + 1)
    compressor.artifact = replace(other, digest=other.computed_digest())
    pulling.pull(compressor)
    assert (pulling.client.at, pulling.client.refused) == (PolicyVersion(), 1)
    pulling.pull(compressor)
    assert (pulling.client.at, pulling.client.acting.chain) == (PolicyVersion(0, 1), "fuse>onnx")
    np.testing.assert_allclose(
        pulling.runtime.parameters(observations),
        float64_parameters(tools.flat, tensors, observations),
        rtol=1e-5,
        atol=1e-5,
    )
    # the next version is tried as the chain makes it
    compressor.compress(PolicyVersion(0, 2), tensors)
    pulling.pull(compressor)
    assert (pulling.client.at, pulling.client.acting.chain) == (
        PolicyVersion(0, 2),
        compressor.artifact.chain,
    )
    assert pulling.client.acting.chain.startswith("int8")


def test_an_uncompressed_policy_that_is_refused_is_asked_for_once_a_second(roles, tools) -> None:
    pulling, compressor = Pulling(roles, tools), make(tools, ["onnx"])
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    damaged = replace(compressor.artifact, digest="0" * 32)
    compressor.newer_than = lambda known, uncompressed: damaged if damaged.at > known.at else None
    begun = pulling.clock.now
    for _ in range(5):
        pulling.pull(compressor)
    assert pulling.clock.now - begun > 4.0
    assert (pulling.client.refused, pulling.client.swaps) == (5, 0)
    assert pulling.client.at == PolicyVersion()


def test_a_role_that_has_the_newest_artifact_gets_nothing(roles, tools) -> None:
    compressor = make(tools, ["onnx"])
    server, endpoint = roles("compressor-0").serve("artifacts")
    client = roles("actor-0").connect(endpoint)
    artifacts = ArtifactServer(server, {"default": compressor}, tools.Clock())
    for known, expected in (((-1, -1), ArtifactReply), ((0, 1, "onnx"), NoNewerWeights)):
        if compressor.artifact is None:
            compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
        assert client.send(ArtifactRequest(*known), timeout_s=tools.deadline_s)
        tools.wait_until(lambda: server.transport.wait(0.05), "the request is there")
        artifacts.serve(0.0)
        assert artifacts.sent == 1
        message = client.receive(tools.deadline_s).message
        assert isinstance(message, expected) and message.pause_s == 1 / 2000
