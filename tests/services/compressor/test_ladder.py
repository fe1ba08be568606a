"""The ladder of chains: rungs change while actors pull, and each keeps the state of its links."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.config import CompressorConfig
from aclearn.types import PolicyId, PolicyVersion
from compress import CompressorChain
from services.compressor.core import Compressor
from services.policy.factory import uncompressed_chain
from tests.support.compressors import (
    Moody,
    Pulling,
    float64_parameters,
    some_observations,
    some_tensors,
)
from tests.support.contexts import seen

_UNCOMPRESSED = "fuse>onnx"


class Scaled(Moody):
    """Multiplies all tensors, and counts its versions in its memory."""

    needs_observations = False

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.spoil = lambda tensors: {n: t * np.float32(factor) for n, t in tensors.items()}

    @property
    def id(self) -> str:
        return f"scaled={self.factor:g}"

    def compress(self, policy, context):
        memory = context.memory(self.state_key)
        memory["versions"] = memory.get("versions", 0) + 1
        return super().compress(policy, context)

    def gauges(self, memory):
        return {"versions": memory.get("versions", 0)}


def make_scaled(
    tools, *factors: float, every: int = 1, **changes
) -> tuple[list[Scaled], Compressor]:
    """A compressor of one rung for each factor, and of the uncompressed policy above them."""
    config = CompressorConfig(chain=["onnx"], **changes)
    links = [Scaled(factor) for factor in factors]
    compared = config.fidelity_observations
    chains = [
        CompressorChain(fidelity_observations=compared, fidelity_every=every).add(link)
        for link in links
    ]
    chains.append(uncompressed_chain())
    return links, Compressor(chains, tools.flat, config, seed=1, clock=tools.Clock())


def test_another_rung_compresses_the_same_version_again_and_actors_take_it(roles, tools) -> None:
    pulling, (_, compressor) = Pulling(roles, tools), make_scaled(tools, 3.0, 2.0)
    tensors, observations = some_tensors(tools.flat, 1), some_observations(tools.flat, 8)
    compressor.observe(seen(some_observations(tools.flat, 40)))
    at = PolicyVersion(0, 5)
    compressor.compress(at, tensors)
    pulling.pull(compressor)
    changes = (1, 2.0, "scaled=2"), (2, 1.0, _UNCOMPRESSED), (0, 3.0, "scaled=3")
    for rung, factor, chain in changes:
        old = pulling.client.acting
        compressor.set_rung(rung)
        assert compressor.known < at  # so that the trainer sends this version once more
        assert compressor.newer_than(pulling.client.id) is None  # no gap: the last one stays
        assert pulling.client.acting is old
        compressor.compress(at, tensors)
        assert compressor.gauges()["rung"] == rung and compressor.gauges()["compressed"] == 1.0
        pulling.pull(compressor)
        assert pulling.client.id == PolicyId(at, chain)
        scaled = {name: tensor * np.float32(factor) for name, tensor in tensors.items()}
        np.testing.assert_allclose(
            pulling.runtime.parameters(observations),
            float64_parameters(tools.flat, scaled, observations),
            rtol=1e-4,
            atol=1e-4,
        )
        assert compressor.newer_than(pulling.client.id) is None
    assert pulling.client.refused == 0


def test_a_rung_keeps_the_state_of_its_links_while_another_one_is_current(tools) -> None:
    links, compressor = make_scaled(tools, 3.0, 2.0)
    visited = some_observations(tools.flat, 40)
    compressor.observe(seen(visited))
    kept = []
    for version, rung in enumerate([0, 0, 1, 2, 1, 0]):
        compressor.set_rung(rung)
        compressor.compress(PolicyVersion(0, version), some_tensors(tools.flat, version))
        kept.append(compressor.gauges().get("scaled_versions"))
    assert kept == [1, 2, 1, None, 2, 3]
    assert [link.calls for link in links] == [3, 2]  # only the current rung's is made
    # but what they measured before other versions is old
    assert [rung.context.restarts for rung in compressor.ladder.rungs] == [1, 1, 0]
    first, second, _ = compressor.ladder.rungs
    np.testing.assert_array_equal(
        *(rung.context.visited.observations["observation"] for rung in (first, second))
    )


def test_beyond_max_kl_the_next_rung_is_published(tools) -> None:
    links, compressor = make_scaled(tools, 9.0, 1.0, max_kl=0.01)
    tensors = some_tensors(tools.flat, 1)
    compressor.observe(seen(some_observations(tools.flat, 400)))
    compressor.compress(PolicyVersion(0, 1), tensors)
    assert (compressor.artifact.chain, compressor.errors) == ("scaled=1", {"unfaithful": 1})
    # the gauges are the current rung's, which strategies judge
    gauges = compressor.gauges()
    assert gauges["kl_mean"] > 0.01 and (gauges["rung"], gauges["compressed"]) == (0.0, 0.0)
    links[1].error = KeyError("x")
    compressor.compress(PolicyVersion(0, 2), tensors)
    assert compressor.artifact.chain == _UNCOMPRESSED
    assert compressor.errors == {"unfaithful": 2, "KeyError": 1}
    compressor.set_rung(2)
    compressor.compress(PolicyVersion(0, 2), tensors)
    gauges = compressor.gauges()
    assert (gauges["kl_mean"], gauges["kl_max"], gauges["agreement"]) == (0.0, 0.0, 1.0)


def test_back_on_a_rung_its_distance_is_measured_at_once(tools) -> None:
    links, compressor = make_scaled(tools, 9.0, every=100)
    compressor.observe(seen(some_observations(tools.flat, 400)))
    tensors = some_tensors(tools.flat, 1)
    compressor.compress(PolicyVersion(0, 1), tensors)
    far = compressor.gauges()["kl_mean"]
    assert far > 0.01
    links[0].spoil = dict
    compressor.compress(PolicyVersion(0, 2), tensors)
    assert compressor.gauges()["kl_mean"] > 0.01  # the comparison is still that of version 1
    compressor.set_rung(1)
    assert "kl_mean" not in compressor.gauges()  # not the old rung's
    compressor.compress(PolicyVersion(0, 2), tensors)
    compressor.set_rung(0)
    compressor.compress(PolicyVersion(0, 2), tensors)
    assert compressor.gauges()["kl_mean"] < 1e-6 < far


def test_the_largest_kl_is_of_1024_observations_or_absent(tools) -> None:
    _, compressor = make_scaled(tools, 9.0, every=4, fidelity_observations=1024)
    tensors, version = some_tensors(tools.flat, 1), 0

    def compressed(times: int) -> list[tuple[float, bool]]:
        nonlocal version
        told = []
        for _ in range(times):
            version += 1
            compressor.compress(PolicyVersion(0, version), tensors)
            gauges = compressor.gauges()
            told.append((gauges["kl_observations"], "kl_max" in gauges))
        return told

    compressor.observe(seen(some_observations(tools.flat, 1200)))  # a third is held out
    assert len(compressor.ladder.rung.context.held_out) < 1024
    assert {known for _, known in compressed(4)} == {False}
    compressor.observe(seen(some_observations(tools.flat, 4000)))
    assert {known for _, known in compressed(3)} == {False}  # the last comparison was of few
    assert compressed(1) == [(1024.0, True)]
    assert compressor.gauges()["kl_max"] > 0.01
    compressor.set_rung(1)
    compressor.compress(PolicyVersion(0, version), tensors)
    compressor.set_rung(0)
    assert compressed(4) == [(256.0, False), (512.0, False), (768.0, False), (1024.0, True)]


def test_a_link_that_fails_on_the_new_rung_is_tried_again_and_the_old_artifact_stays(tools) -> None:
    links, compressor = make_scaled(tools, 3.0, 2.0)
    tensors, at = some_tensors(tools.flat, 1), PolicyVersion(0, 1)
    compressor.compress(at, tensors)
    links[1].error = KeyError("x")
    compressor.set_rung(1)
    for _ in range(4):
        compressor.compress(at, tensors)
        assert compressor.artifact.chain == "scaled=3" and compressor.known < at
    links[1].error = None
    compressor.compress(at, tensors)
    assert (compressor.artifact.chain, compressor.known) == ("scaled=2", at)


def test_the_current_rung_named_again_changes_nothing(tools) -> None:
    _, compressor = make_scaled(tools, 3.0)
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    compressor.set_rung(0)
    assert compressor.known == PolicyVersion(0, 1)


def test_a_rung_that_the_ladder_lacks_is_refused(tools) -> None:
    _, compressor = make_scaled(tools, 3.0)
    with pytest.raises(ValueError, match="expected a rung from 0 to 1, got 2"):
        compressor.set_rung(2)
    assert compressor.ladder.current == 0
