"""Networks of a user's own in every runtime, in artifacts and models, against torch itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from aclearn.distributions import distribution_of
from aclearn.policies import Architecture, users_architecture
from aclearn.policies.network import PolicyNetwork, tensors_of
from aclearn.policies.users_description import describe_module
from aclearn.types import ActionSpec, LeafSpec, ObservationSpec, PolicyVersion, Visited
from aclearn.types.action_spec import ActionPart
from compress import (
    ArtifactRuntime,
    ChainError,
    Context,
    OnnxRuntime,
    Policy,
    PolicyGraph,
    parse_chain,
)
from compress.export import export_onnx, run_onnx
from compress.policy import random_observations
from compress.runtimes import onnx_runtime
from compress.runtimes.onnx_runtime import OnnxExecutable, needs_export, new_session
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support import own_networks
from tests.support.waiting import run_python

_FLAT = ObservationSpec.plain((3,), "float32")
_IMAGES = ObservationSpec.plain((4, 12, 12), "uint8", 4)
_LEAVES = ObservationSpec(
    {"image": LeafSpec((1, 5, 5), "uint8"), "name": LeafSpec((2,), "float32")}
)
_TWO = ActionSpec.discrete(2)
_MIXED = ActionSpec.of(
    (
        ActionPart(("which",), counts=(3,), starts=(0,)),
        ActionPart(("where",), (1,), "float32", low=(0.0,), high=(4.0,)),
    )
)
_NETWORKS: dict[str, tuple] = {
    "plain": ("Plain", _FLAT),
    "images": ("Plain", _IMAGES),
    "attention": ("Attention", _IMAGES),
    "leaves": ("OfLeaves", _LEAVES),
    "baked": ("Baked", _FLAT),
    "mixed": ("Plain", _FLAT, "v", _MIXED),
}


def _described(
    network: str,
    observation: ObservationSpec,
    critic: str = "v",
    actions: ActionSpec = _TWO,
) -> Architecture:
    name = f"tests.support.own_networks:{network}"
    P = distribution_of(actions).parameter_count
    module, _ = describe_module(name, {}, observation, P, critic)
    return users_architecture(module, actions)


def _observations(architecture: Architecture, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    return random_observations(architecture.observation, count, np.random.default_rng(seed))


def _by_torch(network: str, architecture: Architecture, tensors, observations):
    """The user's class alone: its weights by `load_state_dict`, pixels divided by hand."""
    module = getattr(own_networks, network)(architecture.observation, architecture.parameter_count)
    state = {
        name.removeprefix("network."): torch.from_numpy(value) for name, value in tensors.items()
    }
    module.load_state_dict(state, strict=False)
    leaves = {
        name: torch.from_numpy(leaf / np.float32(255) if leaf.dtype == np.uint8 else leaf)
        for name, leaf in observations.items()
    }
    with torch.no_grad():
        if network == "OfLeaves":
            return module.step(leaves)[0].numpy()
        return module(*leaves.values())[0].numpy()


@pytest.mark.parametrize("case", _NETWORKS)
@pytest.mark.parametrize("runtime", [OnnxRuntime, TorchRuntime])
def test_every_version_computes_what_the_module_computes(
    case: str, runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, architecture = _NETWORKS[case][0], _described(*_NETWORKS[case])
    export, exports = onnx_runtime.exported_model, []
    monkeypatch.setattr(
        onnx_runtime, "exported_model", lambda *given: exports.append(given) or export(*given)
    )
    made = runtime(architecture)
    for seed in (1, 2):
        tensors = tensors_of(PolicyNetwork(architecture, seed=seed))
        if case == "baked":
            tensors["network.gain"] += np.float32(seed)
        executable = made.load(tensors)
        for count in (1, 7):
            observations = _observations(architecture, count, seed)
            np.testing.assert_allclose(
                executable.step(observations).parameters,
                _by_torch(network, architecture, tensors, observations),
                atol=1e-5,
            )
    # weights are swapped where the graph can take them
    assert len(exports) == (2 if (case, runtime) == ("baked", OnnxRuntime) else 0)


def _steps_of_torch(network: str, architecture: Architecture, tensors, steps):
    """The parameters of the user's class alone, step after step; its state is its own."""
    module = getattr(own_networks, network)(architecture.observation, architecture.parameter_count)
    weights = {
        name.removeprefix("network."): torch.from_numpy(value) for name, value in tensors.items()
    }
    module.load_state_dict(weights)
    state: tuple = ()
    with torch.no_grad():
        for observations in steps:
            leaves = {
                name: torch.from_numpy(leaf / np.float32(255) if leaf.dtype == np.uint8 else leaf)
                for name, leaf in observations.items()
            }
            output = module.step(leaves, state)
            state = output.state
            yield output.parameters.numpy()


def _check_steps(executable, expected, steps) -> None:
    state: tuple = ()
    for observations, parameters in zip(steps, expected, strict=True):
        output = executable.step(observations, state)
        state = output.state
        np.testing.assert_allclose(output.parameters, parameters, atol=1e-5)


@pytest.mark.parametrize("network", ["Remembers", "Unrolls", "Layered", "BakedMemory"])
@pytest.mark.parametrize("runtime", [OnnxRuntime, TorchRuntime])
def test_a_state_passes_from_step_to_step(network: str, runtime) -> None:
    architecture = _described(network, _LEAVES)
    assert needs_export(PolicyGraph(architecture)) == (network == "BakedMemory")
    made = runtime(architecture)
    for seed in (1, 2):
        tensors = tensors_of(PolicyNetwork(architecture, seed=seed))
        if network == "BakedMemory":
            tensors["network.gain"] += np.float32(seed)
        for count in (1, 3):
            steps = [_observations(architecture, count, t) for t in range(6)]
            expected = [*_steps_of_torch(network, architecture, tensors, steps)]
            _check_steps(made.load(tensors), expected, steps)
            again = [*_steps_of_torch(network, architecture, tensors, steps[5:])]
            assert np.abs(again[0] - expected[5]).max() > 1e-3  # it does remember


@pytest.mark.parametrize("network", ["Remembers", "BakedMemory"])
@pytest.mark.parametrize("chain", [["onnx"], ["fuse", "onnx"]])
def test_artifacts_with_a_state_act_and_are_exported(network: str, chain: list) -> None:
    architecture = _described(network, _LEAVES)
    tensors = tensors_of(PolicyNetwork(architecture, seed=3))
    policy = Policy.of(architecture, tensors, PolicyVersion(0, 1))
    artifact = parse_chain(chain).compress(policy, Context(Visited(), seed=1))
    steps = [_observations(architecture, 3, t) for t in range(4)]
    expected = [*_steps_of_torch(network, architecture, tensors, steps)]
    _check_steps(ArtifactRuntime(architecture).load(artifact), expected, steps)
    _check_steps(OnnxExecutable(new_session(export_onnx(artifact))), expected, steps)


@pytest.mark.parametrize("case", ["plain", "attention", "baked", "mixed"])
@pytest.mark.parametrize(
    "chain",
    [[], ["fuse", "onnx"], ["fp16"], [{"distill": "mlp"}, "onnx"]],
    ids=lambda chain: "-".join(map(str, chain)) or "none",
)
def test_artifacts_of_it_act_and_are_exported(case: str, chain: list) -> None:
    architecture = _described(*_NETWORKS[case])
    tensors = tensors_of(PolicyNetwork(architecture, seed=3))
    policy = Policy.of(architecture, tensors, PolicyVersion(0, 1))
    visited = _observations(architecture, 200)
    links = parse_chain(chain)
    assert links.plan(architecture).architecture.action_spec == architecture.action_spec
    artifact = links.compress(policy, Context(Visited(visited), seed=1))
    graph = PolicyGraph.from_dict(json.loads(json.dumps(artifact.graph.to_dict())))
    assert graph == artifact.graph
    assert graph.digest() == artifact.graph.digest()
    observations = _observations(architecture, 5)
    found = ArtifactRuntime(architecture).load(artifact).step(observations).parameters
    if {"distill": "mlp"} not in chain:
        expected = _by_torch(_NETWORKS[case][0], architecture, tensors, observations)
        np.testing.assert_allclose(found, expected, atol=2e-2 if "16" in str(chain) else 1e-5)
    if chain[-1:] == ["onnx"]:
        exported = run_onnx(export_onnx(artifact), observations)["parameters"]
        np.testing.assert_allclose(exported, found, atol=1e-5)


@pytest.mark.parametrize("link", ["distill", {"prune": 0.5}, {"low_rank": 0.9}, "int8"])
def test_links_that_read_layers_refuse_it_by_name(link) -> None:
    architecture = _described("Plain", _FLAT)
    words = r"reads a network's layers, and tests\.support\.own_networks:Plain is a module of yours"
    with pytest.raises(ChainError, match=words):
        parse_chain([link, "onnx"]).plan(architecture)
    with pytest.raises(ChainError, match=r"torchscript: traces layers .* end the chain in onnx"):
        parse_chain(["torchscript"]).plan(architecture)
    student = parse_chain([{"distill": "mlp"}, {"prune": 0.5}, "int8", "onnx"])
    assert student.plan(architecture).precision == "int8"


def test_a_q_critic_and_normalised_returns_follow_the_module() -> None:
    architecture = _described("Actions", _FLAT, critic="q")
    network = PolicyNetwork(architecture, seed=0)
    (x,) = _observations(architecture, 4).values()
    output = network.step({"observation": torch.from_numpy(x)})
    assert output.value is None
    assert output.q is not None and output.q.shape == (4, 2)
    module = architecture.layers[1].module
    assert module is not None
    scaled = users_architecture(module, ActionSpec.discrete(2), normalise_returns=True)
    names = [layer.name for layer in scaled.layers]
    assert names[-3:] == ["q_part", "q_normalised", "q"]
    assert scaled.digest() != architecture.digest()


def test_its_digest_depends_on_arguments_and_shapes_but_not_on_the_exported_graph() -> None:
    name = "tests.support.own_networks:Plain"
    module, _ = describe_module(name, {}, _FLAT, 2, "v")
    wider, _ = describe_module(name, {"width": 17}, _FLAT, 2, "v")
    actions = ActionSpec.discrete(2)
    base = users_architecture(module, actions)
    again = Architecture.from_dict(json.loads(json.dumps(base.to_dict())))
    assert (again, again.digest()) == (base, base.digest())
    assert users_architecture(wider, actions).digest() != base.digest()
    data = base.to_dict()
    data["layers"][1]["module"]["onnx"] = ""
    other = Architecture.from_dict(data)
    assert (other, other.digest()) == (base, base.digest())
    assert PolicyGraph(other).digest() == PolicyGraph(base).digest()


def test_an_actor_builds_it_without_torch(tmp_path) -> None:
    architecture = _described("Plain", _FLAT)
    data = tmp_path / "architecture.json"
    data.write_text(json.dumps(architecture.to_dict()))
    weights = {n: t.tolist() for n, t in tensors_of(PolicyNetwork(architecture, seed=1)).items()}
    (tmp_path / "weights.json").write_text(json.dumps(weights))
    program = """
import json, sys, numpy as np
from aclearn.policies import Architecture
from compress import OnnxRuntime
architecture = Architecture.from_dict(json.load(open(sys.argv[1])))
tensors = {n: np.array(t, np.float32) for n, t in json.load(open(sys.argv[2])).items()}
made = OnnxRuntime(architecture).load(tensors)
made.step({"observation": np.ones((2, 3), np.float32)})
assert "torch" not in sys.modules
"""
    result = run_python("-c", program, str(data), str(tmp_path / "weights.json"))
    assert (result.returncode, result.stderr) == (0, ""), result
