"""From the configuration to an architecture and a runtime."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from aclearn.config import (
    ActorsConfig,
    CompressorConfig,
    Config,
    EnvConfig,
    NetworkConfig,
    PolicyConfig,
    PredictorConfig,
    load_config,
)
from aclearn.errors import ConfigError
from aclearn.policies import describe_architecture
from aclearn.telemetry import WaitMeter
from aclearn.types import ActionSpec, PolicyVersion
from aclearn.types.action_spec import ActionPart
from compress import ChainError, CompressorChain, Context, OnnxRuntime, Policy, PolicyGraph
from compress.methods.quantizer import Quantizer, has_vnni
from compress.runtimes.cuda_runtime import CudaGraphRuntime
from compress.runtimes.torch_runtime import TorchRuntime
from services.actor.main import make_actions
from services.compressor.core import Compressor
from services.policy.factory import architecture_of, make_ladder, make_runtime
from tests.support.acting import Acting, parameters_of
from tests.support.architectures import parts_of
from tests.support.contexts import seen
from tests.support.env_specs import plain_spec

_IMAGES = plain_spec((4, 84, 84), "uint8", 6, 4)
_BOX = ActionSpec.of((ActionPart(dtype="float32", shape=(2,), low=(0, 0), high=(1, 1)),))
_SHIPPED = sorted((Path(__file__).parents[3] / "configs").rglob("*.yaml"))


def _config(**policy: object) -> Config:
    return Config(env=EnvConfig(id="CartPole-v1"), policy=PolicyConfig(**policy))


def test_the_architecture_is_the_preset_for_the_environment() -> None:
    expected = describe_architecture("accerl-net3", observation=_IMAGES.observation, actions=6)
    assert architecture_of(_config(architecture="accerl-net3"), _IMAGES) == expected


def test_hidden_widths_of_the_configuration_are_used() -> None:
    made = architecture_of(_config(architecture="nature", hidden=(32,)), _IMAGES)
    assert parts_of(made).hidden == (32,)
    wide = {"hidden": (256, 256, 128), "activation": "elu", "separate_value": False}
    made = parts_of(
        architecture_of(_config(architecture="mlp", **wide), plain_spec((4,), "float32", 2))
    )
    assert (made.hidden, made.activation, made.separate_value) == tuple(wide.values())
    made = parts_of(architecture_of(_config(architecture="nature", separate_value=True), _IMAGES))
    assert (made.hidden, made.activation, made.separate_value) == ((512,), "relu", True)


def test_a_q_head_is_that_of_discrete_actions_only() -> None:
    config = _config(architecture="nature", critic="q")
    assert architecture_of(config, _IMAGES).tensor_shapes()["q.weight"] == (6, 512)
    with pytest.raises(
        ConfigError, match=r"^policy\.critic: q has one value .* 2 numbers; set it to v$"
    ):
        architecture_of(config, replace(_IMAGES, action=_BOX))


def test_without_a_spec_the_environment_is_asked() -> None:
    architecture = architecture_of(_config(architecture="mlp"))
    assert architecture.observation["observation"].shape == (4,)
    assert (architecture.observation["observation"].dtype, architecture.parameter_count) == (
        "float32",
        2,
    )


def test_a_preset_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs images"):
        architecture_of(_config(architecture="nature"), plain_spec((4,), "float32", 2, 1))


@pytest.mark.parametrize(
    ("kind", "runtime"),
    [("onnx", OnnxRuntime), ("torch", TorchRuntime), ("torch-amp", TorchRuntime)],
)
def test_all_runtimes_answer_alike(tools, kind, runtime) -> None:
    architecture = tools.images
    made = make_runtime(architecture, kind, device="cpu")
    assert isinstance(made, runtime)
    rng = np.random.default_rng(3)
    tensors = {
        name: (np.prod(shape[1:]) ** -0.5 * rng.normal(0.0, 0.5, shape)).astype(np.float32)
        for name, shape in architecture.tensor_shapes().items()
    }
    executable = made.load(tensors)
    other = Acting(OnnxRuntime(architecture))
    other.load({name: tensor.copy() for name, tensor in tensors.items()})
    observations = rng.integers(0, 256, (3, 2, 8, 8), np.uint8)
    # torch-amp computes in bf16 where the CPU has it
    atol = 0.05 if kind == "torch-amp" else 1e-5
    answer = parameters_of(executable, observations)
    np.testing.assert_allclose(answer, other.parameters(observations), atol=atol)


def test_an_actor_computes_on_its_processor_whatever_gpu_there_is(
    roles, tools, monkeypatch
) -> None:
    asked = {}

    def record(architecture, kind, **settings):
        asked.update(settings, kind=kind)
        return OnnxRuntime(architecture)

    monkeypatch.setattr("services.policy.client.make_runtime", record)
    make_actions(
        _config(architecture="mlp").model_copy(update={"actors": ActorsConfig(runtime="torch")}),
        roles("actor-0"),
        np.random.default_rng,
        None,  # the monitor, of a predictor's client
        replace(tools.flat_unrolls, most_rows=12),
        WaitMeter(),
    )
    assert asked == {"kind": "torch", "threads": 1, "device": "cpu", "max_batch": 12}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["torch", "torch-amp"])
def test_a_torch_runtime_on_a_gpu_answers_as_the_one_on_the_cpu(tools, kind) -> None:
    rng = np.random.default_rng(3)
    shapes = tools.images.tensor_shapes().items()
    tensors = {name: 0.3 * rng.normal(size=shape).astype(np.float32) for name, shape in shapes}
    observations = rng.integers(0, 256, (3, 2, 8, 8), np.uint8)
    logits = []
    for device in ("cpu", "cuda"):
        made = make_runtime(tools.images, kind, device=device, max_batch=4)
        assert isinstance(made, CudaGraphRuntime) == (device == "cuda")
        logits.append(parameters_of(made.load(tensors), observations))
    np.testing.assert_allclose(logits[1], logits[0], atol=0.05)


@pytest.mark.parametrize("item", ["int8", {"int8": {}}, {"quantize": "INT8"}])
@pytest.mark.parametrize(
    ("host", "here"), [("127.0.0.1", True), ("[::1]", True), ("0.0.0.0", False), ("eth0", False)]
)
def test_int8_for_actors_elsewhere_has_7_bits_unless_told_otherwise(
    tools, item, host, here
) -> None:
    def graph_of(item: object) -> PolicyGraph:
        config = Config(
            env=EnvConfig(id="a"),
            network=NetworkConfig(bind_host=host, keys_dir="keys"),
            compressor=CompressorConfig(chain=[item, "onnx"]),
        )
        return make_ladder(config, tools.flat)[0].plan(tools.flat)

    assert graph_of(item).reduced_range == (not has_vnni() if here else True)
    for told in (True, False):
        assert graph_of({"int8": {"reduced_range": told}}).reduced_range is told


@pytest.mark.parametrize(
    ("inference", "agents", "sizes"),
    [("local", 1, {8}), ("local", 3, {24}), ("predictor", 1, {8, 64}), ("predictor", 3, {24, 64})],
)
def test_latency_is_measured_at_the_batch_sizes_of_actor_or_predictor(
    tools, inference, agents, sizes
) -> None:
    config = Config(
        env=EnvConfig(id="a"),
        actors=ActorsConfig(inference=inference, envs_per_group=8),
        predictor=PredictorConfig(max_batch=64),
        compressor=CompressorConfig(chain=["onnx"]),
    )
    rng = np.random.default_rng(3)
    shapes = tools.flat.tensor_shapes().items()
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes}
    policy = Policy.of(tools.flat, tensors, PolicyVersion(0, 1))
    chain = make_ladder(config, tools.flat, agents=agents)[0]
    assert chain.compress(policy, Context()).latency_ms.keys() == sizes


def test_rungs_that_actors_could_not_tell_apart_are_refused(tools) -> None:
    ladder = [["int8", "onnx"], [{"quantize": "int8"}, "onnx"], []]
    config = Config(env=EnvConfig(id="a"), compressor=CompressorConfig(ladder=ladder))
    with pytest.raises(ChainError, match=r"rungs 0 and 1 are both .*int8.* remove one of them"):
        make_ladder(config, tools.flat)


def _with_min_action_prob(min_action_prob: float, max_kl: float | None) -> Config:
    return Config(
        env=EnvConfig(id="a"),
        compressor=CompressorConfig(chain=["onnx"], min_action_prob=min_action_prob, max_kl=max_kl),
    )


def test_a_min_action_prob_that_takes_a_certain_policy_beyond_the_bound_is_warned_of(
    tools, caplog
) -> None:
    # of 4 actions 3 keep 0.1 each; the one that the policy is certain of is left with 0.7
    distance = -math.log(0.7)
    make_ladder(_with_min_action_prob(0.1, distance * (1 - 1e-9)), tools.flat)
    # a nat: 1 − 1/e of probability for 3 actions
    make_ladder(_with_min_action_prob(0.22, 1.0), tools.flat)
    first, second = caplog.messages
    assert (
        "compressor.min_action_prob: 0.1 for each of 4 actions" in first and "0.357 nats" in first
    )
    assert "min_action_prob to less than 0.1, or max_kl to more than 0.357" in first
    assert "set min_action_prob to less than 0.211, " in second
    for min_action_prob, bound in [(0.21, 1.0), (0.0, 1e-9), (0.24, None)]:
        make_ladder(_with_min_action_prob(min_action_prob, bound), tools.flat)
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(("share", "chain"), [(1 + 1e-5, "onnx"), (1 - 1e-5, "fuse>onnx")])
def test_the_bound_of_min_action_prob_is_where_an_exact_copy_is_no_longer_published(
    tools, share, chain
) -> None:
    bound = -math.log(0.7) * share
    config = _with_min_action_prob(0.1, bound)
    made = make_ladder(_with_min_action_prob(0.1, None), tools.flat)[0]
    compressor = Compressor([made], tools.flat, config.compressor, seed=1)
    compressor.observe(seen(np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)))
    tensors = {n: np.zeros(s, np.float32) for n, s in tools.flat.tensor_shapes().items()}
    tensors["policy.bias"][1] = 100.0  # certain: the others have e⁻¹⁰⁰
    compressor.compress(PolicyVersion(0, 1), tensors)
    assert compressor.artifact is not None and compressor.artifact.chain == chain


@pytest.mark.parametrize("path", _SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_chain_of_a_shipped_configuration_can_be_made(path) -> None:
    config = load_config(path)
    flat = config.policy.architecture == "mlp"
    spec = plain_spec((4,), "float32", 2, 1) if flat else _IMAGES
    if config.env.squash_actions or config.policy.initial_std != 1.0:  # of Box actions alone
        spec = replace(spec, action=replace(_BOX, squash=config.env.squash_actions))
    architecture = architecture_of(config, spec)
    chain = (make_ladder(config, architecture) or [CompressorChain()])[0]
    int8 = Quantizer().id
    expected = {
        "cluster": f"{int8}>onnx",
        "pong_int8": f"{int8}>onnx",
        "pong_pruned": "prune=0.75-convolutions=0-activation>onnx",
        "pong_distilled": "distill=accerl-net1>onnx",
        "pong_chain": f"prune=0.5>distill>{int8}>onnx",
        "int8": f"{int8}>onnx",
        "stocks_int8": f"{int8}>onnx",
        "pruned": "prune=0.5>distill>onnx",
        "distilled": "distill=accerl-net1>onnx",
        "distilled_int8": f"distill=accerl-net1>{int8}>onnx",
        "mix": "distill=accerl-net3>onnx",
    }
    assert chain.id == expected.get(path.stem, "none")
    assert chain.without_effect == ()  # every link that is written is run
    made = chain.plan(architecture).architecture
    if "distilled" in path.stem:
        assert parts_of(made).hidden == (256,)
    elif path.stem == "mix":
        assert parts_of(made).hidden == (32,)
    elif path.stem in ("pong_chain", "pruned"):  # half of each layer of accerl-original
        pruned = parts_of(made)
        assert [layer.filters for layer in pruned.convolutions] == [16, 32, 32]
        assert pruned.hidden == (1024,)
    elif path.stem == "pong_pruned":
        whole, pruned = parts_of(architecture), parts_of(made)
        assert (pruned.convolutions, pruned.hidden) == (whole.convolutions, (512,))
    else:
        assert made == architecture


@pytest.mark.parametrize(
    ("keys", "numbers", "bound"),
    [
        ({}, 0, None),
        ({}, 2, 0.5),
        ({"fidelity_observations": 0}, 2, None),
        ({"max_kl": None}, 2, None),
        ({"max_kl": 3.0}, 2, 3.0),
        ({"max_kl": 3.0}, 0, 3.0),
    ],
)
def test_gaussians_have_a_bound_by_default(keys, numbers, bound) -> None:
    box = ActionPart(("box",), (2,), "float32", low=(-1.0,) * 2, high=(1.0,) * 2)
    choice = ActionPart(("choice",), (), counts=(3,), starts=(0,))
    actions = ActionSpec.of((box if numbers else choice,))
    assert CompressorConfig(chain=["onnx"], **keys).kl_bound(actions) == bound
