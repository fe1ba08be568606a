"""A link from outside the packages: one file and a line of YAML, in a chain and a compressor."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from aclearn.config import load_config
from aclearn.types import PolicyVersion
from compress import ChainError, parse_chain
from services.compressor.core import Compressor
from services.policy.factory import make_ladder
from tests.support.compressors import some_observations, some_tensors
from tests.support.contexts import seen
from tests.support.system import TOYS

_YAML = """
env: {id: CartPole-v1}
compressor:
  chain: [{"toy_link:RoundWeights": 0.25}, onnx]
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    (tmp_path / "toy.yaml").write_text(_YAML, "utf-8")
    monkeypatch.chdir(TOYS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield load_config(tmp_path / "toy.yaml")
    sys.modules.pop("toy_link", None)


def quarters(tensors):
    """The nearest multiples of a quarter; no number of these is half-way between two."""
    return {name: (np.floor(4.0 * t + 0.5) / 4.0).astype(np.float32) for name, t in tensors.items()}


def test_a_compressor_publishes_what_the_link_makes_and_tells_its_gauges(config, tools) -> None:
    compressor = Compressor(
        make_ladder(config, tools.flat),
        tools.flat,
        config.compressor,
        seed=1,
        clock=tools.Clock(),
    )
    compressor.observe(seen(some_observations(tools.flat, 40)))
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
        parse_chain([{"toy_link:RoundWeights": -1}])
    with pytest.raises(ChainError, match=r"round.stop is not a known key; did you mean round.step"):
        parse_chain([{"toy_link:RoundWeights": {"stop": 1}}])
