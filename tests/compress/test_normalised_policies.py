"""Policies that normalise observations and returns go through every link."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.distributions import distribution_of
from aclearn.policies import build_architecture
from aclearn.types import ObservationSpec, PolicyVersion
from compress import (
    ArtifactRuntime,
    ChainError,
    Distiller,
    Policy,
    PolicyGraph,
    parse_chain,
)
from compress.export import export_onnx, run_onnx
from compress.graphs.int8_reference import integer_parameters
from compress.methods.student import Lessons, Student
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support.contexts import context_of, seen

#: Sizes 1e33 apart, around 1e4 and 0; bf16 and fp16 have neither these means nor their neighbours.
MEAN = np.array([1e4, -30.0, 0.0, 0.5, 1e4], np.float32)
STD = np.array([3.0, 1e3, 1e-30, 1.0, 100.0], np.float32)
PLAIN = ObservationSpec.plain((5,), "float32")
ARCHITECTURE = build_architecture(
    "small", PLAIN, 3, (), (16, 8), "tanh", True,
    normalise_observations=True, normalise_returns=True,
)  # fmt: skip
CHAINS: list[list[object]] = [
    [],
    ["onnx"],
    ["fuse", {"prune": 0.5}, "int8", "onnx"],
    [{"quantize": {"precision": "int8", "per_channel": True}}, "onnx"],
    [{"prune": {"sparsity": 0.5, "importance": "activation"}}, "distill", "onnx"],
    [{"distill": {"student": "mlp", "hidden": [8], "first_steps": 200}}, "int8", "onnx"],
    [{"low_rank": 2}, "int8", "onnx"],
    ["bf16", "torchscript"],
    ["fp16", "onnx"],
    ["fp16"],
]


def _policy(version: int) -> Policy:
    """Versions differ in everything, their statistics a little."""
    rng = np.random.default_rng(version)
    tensors = {
        name: rng.normal(0, 0.4, shape).astype(np.float32)
        for name, shape in ARCHITECTURE.tensor_shapes().items()
    }
    tensors |= {"input.mean": MEAN + version * STD / 8, "input.std": STD * (1 + version / 8)}
    tensors |= {"value.mean": np.array([-900.0]), "value.std": np.array([300.0 + version])}
    floats = {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}
    return Policy.of(ARCHITECTURE, floats, PolicyVersion(0, version))


def _observations() -> np.ndarray:
    return (MEAN + STD * np.random.default_rng(0).normal(size=(600, 5))).astype(np.float32)


def _by_hand(policy: Policy, observations: np.ndarray) -> np.ndarray:
    tensors = policy.tensors
    x = (observations - tensors["input.mean"].astype(np.float64)) / tensors["input.std"]
    x = np.clip(x, -10.0, 10.0)
    for i in range(2):
        x = np.tanh(x @ tensors[f"hidden.{i}.weight"].T + tensors[f"hidden.{i}.bias"])
    return x @ tensors["policy.weight"].T + tensors["policy.bias"]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_every_version_acts_with_its_own_statistics(chain: list[object]) -> None:
    observations = _observations()
    observations[0] = [-1e30, 1e30, 0.0, 0.0, 0.0]  # beyond the bound
    links, context = parse_chain(chain, min_action_prob=0.01), context_of(observations, seed=1)
    links.plan(ARCHITECTURE)
    for version in (1, 2):
        policy = _policy(version)
        artifact = links.compress(policy, context)
        for name in ("input.mean", "input.std"):
            assert artifact.tensors[name].dtype == np.float32
            np.testing.assert_array_equal(artifact.tensors[name], policy.tensors[name])
        loaded = ArtifactRuntime(ARCHITECTURE).load(artifact)
        found = loaded.step({"observation": observations}).parameters
        original = _by_hand(policy, observations)
        if chain in (["onnx"], []):
            np.testing.assert_allclose(found, original, rtol=1e-4, atol=1e-4)
        elif artifact.graph.architecture == ARCHITECTURE:  # neither pruned nor distilled
            distance = distribution_of(ARCHITECTURE.action_spec).kl(original, found).mean()
            assert distance < (0.1 if artifact.graph.precision == "int8" else 2e-4)
        if artifact.graph.precision == "int8":
            leaves = {"observation": observations}
            exact = integer_parameters(artifact.graph, artifact.tensors, leaves)
            np.testing.assert_allclose(found, exact, atol=0.02 * np.abs(exact).max())
        if artifact.graph.runtime == "onnx":
            exported = run_onnx(export_onnx(artifact), seen(observations).observations)[
                "parameters"
            ]
            np.testing.assert_allclose(exported, found, rtol=1e-5, atol=1e-5)
        assert PolicyGraph.from_dict(artifact.graph.to_dict()) == artifact.graph


def test_the_torch_runtime_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, observations = _policy(1), _observations()
    executable = TorchRuntime(ARCHITECTURE).load(policy.tensors)
    found = executable.step({"observation": observations}).parameters
    np.testing.assert_allclose(found, _by_hand(policy, observations), rtol=1e-4, atol=1e-4)


def test_a_network_in_half_precision_reads_its_observations_in_full() -> None:
    """bf16 has no number between 9984 and 10048, which are both observations here."""
    import torch

    from compress.graphs.graph_network import GraphNetwork

    policy, observations = _policy(1), _observations()
    network = GraphNetwork(policy.graph).load(policy.tensors)
    expected, _ = network(torch.from_numpy(observations))
    network.to(torch.bfloat16).get_submodule("input").float()
    for name in ("mean", "std"):
        tensor = torch.from_numpy(policy.tensors[f"input.{name}"])
        network.get_parameter(f"input.{name}").copy_(tensor)
    found, _ = network(torch.from_numpy(observations))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, atol=0.05, rtol=0.05)


def test_a_student_learns_values_in_units_of_their_deviation() -> None:
    """Its gradient is that of a student of the same policy with plain values, scaled by hand."""
    import torch

    policy = _policy(1)
    x = torch.from_numpy(_observations()[:64])
    settings = {"learning_rate": 1e-3, "value_cost": 0.5, "entropy_cost": 0.0}
    students = {}
    for normalised in (True, False):
        graph, tensors = policy.graph, dict(policy.tensors)
        std, mean = (float(tensors[f"value.{name}"][0]) for name in ("std", "mean"))
        if not normalised:
            plain = build_architecture(
                "small", PLAIN, 3, (), (16, 8), "tanh", True, normalise_observations=True
            )
            graph = PolicyGraph(plain)
            for name in ("weight", "bias"):
                tensors[f"value.{name}"] = tensors.pop(f"value_normalised.{name}")
        student = Student(graph, tensors, max_grad_norm=1e9, amp_dtype=None, **settings)
        rng = np.random.default_rng(3)
        teacher = torch.from_numpy(rng.normal(size=(64, 3)).astype(np.float32))
        values = torch.from_numpy(rng.normal(size=64).astype(np.float32))
        taught = values * std + mean if normalised else values
        student.learn(Lessons((x,), teacher, taught), renewed=True)
        students[normalised] = student
    for name, parameter in students[True].network.named_parameters():
        if parameter.requires_grad:
            twin = students[False].network.get_parameter(name.replace("value_normalised", "value"))
            torch.testing.assert_close(parameter.grad, twin.grad, rtol=1e-3, atol=1e-5)
            # Adam's first step is as long as the learning rate, with the sign of the gradient,
            # which rounding decides near 0
            assert float((parameter - twin).detach().abs().max()) < 2.01 * settings["learning_rate"]
            clear = twin.grad.abs() > 1e-4
            torch.testing.assert_close(parameter[clear], twin[clear], rtol=1e-3, atol=1e-5)


def test_a_student_with_statistics_that_the_policy_lacks_is_refused() -> None:
    plain = build_architecture("small", PLAIN, 3, (), (16, 8), "tanh", True)
    with pytest.raises(ChainError, match=r"'input' needs statistics .* the policy has none"):
        Distiller(ARCHITECTURE).plan(PolicyGraph(plain))
