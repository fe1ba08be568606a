"""A link from outside the packages: one file and a line of YAML, in a chain and a compressor."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from aclearn.config import load_config
from aclearn.types import PolicyVersion
from compress import ChainError, Context, Policy, PolicyGraph, parse_chain
from services.compressor.core import Compressor
from services.runtime.policy_factory import make_chain
from tests.support.compressors import acting, some_observations, some_tensors
from tests.support.layer_walk import outputs

_FILE = """
import numpy as np
from pydantic import Field

from aclearn.config import Group
from compress import ConfiguredLink


class Settings(Group):
    step: float = Field(default=0.5, gt=0.0, description="weights become multiples of this")


class RoundWeights(ConfiguredLink[Settings]):
    name = "round"
    model = Settings

    @property
    def id(self):
        return f"round={self.settings.step:g}"

    def plan(self, graph):
        self.require_fp32(graph)
        return graph

    def compress(self, policy, context):
        memory = context.memory(self.state_key)
        memory["versions"] = memory.get("versions", 0) + 1
        step = np.float32(self.settings.step)
        rounded = {name: np.round(t / step) * step for name, t in policy.tensors.items()}
        return policy.become(policy.graph, rounded)

    def gauges(self, memory):
        return {"versions": float(memory.get("versions", 0))}
"""
_YAML = """
env: {id: CartPole-v1}
compressor:
  chain: [{"toy_links:RoundWeights": 0.25}, onnx]
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    (tmp_path / "toy_links.py").write_text(_FILE, "utf-8")
    (tmp_path / "toy.yaml").write_text(_YAML, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield load_config(tmp_path / "toy.yaml")
    sys.modules.pop("toy_links", None)


def quarters(tensors):
    """The nearest multiples of a quarter; no number of these is half-way between two."""
    return {name: (np.floor(4.0 * t + 0.5) / 4.0).astype(np.float32) for name, t in tensors.items()}


def test_a_policy_goes_through_a_chain_with_the_link(config, tools) -> None:
    tensors, observations = some_tensors(tools.flat, 1), some_observations(tools.flat, 6)
    chain = parse_chain(config.compressor.chain)
    artifact = chain.compress(Policy.of(tools.flat, tensors), Context(observations))
    assert artifact.chain == "round=0.25>onnx"
    for name, tensor in artifact.tensors.items():
        np.testing.assert_array_equal(tensor, quarters(tensors)[name])
    runtime = acting(artifact, tools.flat)
    expected, _, _ = outputs(PolicyGraph(tools.flat), quarters(tensors), observations)
    np.testing.assert_allclose(runtime.logits(observations), expected, rtol=1e-5, atol=1e-6)


def test_a_compressor_publishes_what_the_link_makes_and_tells_its_gauges(config, tools) -> None:
    compressor = Compressor(
        make_chain(config, tools.flat), tools.flat, config.compressor, seed=1, clock=tools.Clock()
    )
    compressor.observe(some_observations(tools.flat, 40))
    for version in (1, 2, 3):
        tensors = some_tensors(tools.flat, version)
        compressor.compress(PolicyVersion(0, version), tensors)
        assert compressor.artifact.at == PolicyVersion(0, version)
        weight = compressor.artifact.tensors["hidden.0.weight"]
        np.testing.assert_array_equal(weight, quarters(tensors)["hidden.0.weight"])
    assert (compressor.made, compressor.errors) == (3, {})
    assert compressor.gauges()["round_versions"] == 3.0


def test_a_wrong_setting_of_the_link_is_refused_like_one_of_ours(config) -> None:
    with pytest.raises(ChainError, match=r"round.step: expected number > 0, got -1 .whole"):
        parse_chain([{"toy_links:RoundWeights": -1}])
    with pytest.raises(ChainError, match=r"round.stop is not a known key; did you mean round.step"):
        parse_chain([{"toy_links:RoundWeights": {"stop": 1}}])
