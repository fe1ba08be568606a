"""`trainer.as_actors`: the policy that learns is rounded as the one that acts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aclearn.config import config_of_keys
from aclearn.distributions import distribution_of
from aclearn.envs import read_spec
from aclearn.errors import ConfigError
from aclearn.types import OBSERVATION, PolicyVersion, Visited
from compress import ArtifactRuntime, Context, Policy
from services.policy.factory import make_ladder
from services.trainer.build import make_trainer

#: All products in int8, so that the gap is large; the head tells observations apart.
_INT8 = [{"int8": {"keep_first": 0, "keep_last": 0, "reduced_range": True}}, "onnx"]
KEYS: dict[str, Any] = {
    "env.id": "Pendulum-v1",
    "policy.hidden": [32, 32],
    "policy.initial_std": 0.1,
    "actors.unroll_length": 5,
    "trainer.device": "cpu",
    "trainer.amp": "off",
    "compressor.chain": _INT8,
    "compressor.max_kl": None,
}


def gap_of(**keys: Any) -> float:
    """Mean KL divergence from the trainer's policy to that of an artifact of its weights."""
    config = config_of_keys({**KEYS, **keys})
    trainer = make_trainer(config, read_spec(config.env))
    learner = trainer.learner
    with torch.no_grad():
        learner.network.get_parameter("policy_mean.weight").mul_(200.0)
    rng = np.random.default_rng(1)
    angles, speeds = rng.uniform(-np.pi, np.pi, 600), rng.uniform(-8, 8, 600)
    rows = np.stack([np.cos(angles), np.sin(angles), speeds], 1).astype(np.float32)
    acting = learner.architecture.acting()
    tensors = learner.tensors()
    policy = Policy.of(acting, {n: tensors[n] for n in acting.tensor_shapes()}, PolicyVersion(0, 1))
    chain = make_ladder(config, acting)[0]
    artifact = chain.compress(policy, Context(Visited({OBSERVATION: rows}), seed=1))
    answer = ArtifactRuntime(acting).load(artifact).step({OBSERVATION: rows}).parameters
    worker = learner.own_worker
    worker.refresh(learner.state.parameters)
    with torch.no_grad():
        mine = worker.networks.step({OBSERVATION: torch.from_numpy(rows)}).parameters.numpy()
    return float(distribution_of(acting.action_spec).kl(mine, answer).mean())


@pytest.mark.parametrize(
    "chain",
    [_INT8, ["int8", "onnx"], ["bf16", "onnx"]],
    ids=["int8 of all layers", "int8", "bf16"],
)
def test_the_gap_to_the_actors_policy_becomes_much_smaller(chain) -> None:
    without = gap_of(**{"compressor.chain": chain})
    rounded = gap_of(**{"compressor.chain": chain, "trainer.as_actors": True})
    assert without > 5e-5 and rounded < without / 3


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"compressor.chain": []}, "nothing in compressor.chain rounds"),
        ({"compressor.chain": ["onnx"]}, "nothing in compressor.chain rounds"),
        ({"compressor.chain": [{"prune": 0.5}, "int8", "onnx"]}, "prune in compressor.chain"),
        ({"compressor.chain": ["fuse", "bf16", "onnx"]}, "fuse scales weights before bf16"),
        ({"compressor.chain": ["fuse", {"quantize": "FP16"}]}, "fuse scales weights before fp16"),
        (
            {"compressor.chain": ["fuse", {"quantize": {"precision": "bf16"}}]},
            "fuse scales weights before bf16",
        ),
        (
            {"compressor.chain": [], "compressor.ladder": [["int8", "onnx"], []]},
            "compressor.ladder has several",
        ),
        ({"policy.architecture": "tests.support.own_networks:Plain"}, "a module of your own"),
        ({"trainer.compile": True}, "set trainer.compile to false"),
        ({"loss.kind": "sac", "env.squash_actions": True}, "learns without importance ratios"),
    ],
)
def test_what_it_cannot_follow_is_refused(keys, words) -> None:
    with pytest.raises(ConfigError, match=f"trainer.as_actors: .*{words}"):
        config_of_keys({**KEYS, **keys, "trainer.as_actors": True})
