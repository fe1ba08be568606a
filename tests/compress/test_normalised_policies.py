"""Policies that normalise observations and returns: their precision, and their students."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.policies import build_architecture
from aclearn.types import ObservationSpec, PolicyVersion
from compress import (
    ChainError,
    Distiller,
    Policy,
    PolicyGraph,
)
from compress.graphs.graph_network import GraphNetwork
from compress.methods.student import Lessons, Student

#: Sizes 1e33 apart, around 1e4 and 0; bf16 and fp16 have neither these means nor their neighbours.
MEAN = np.array([1e4, -30.0, 0.0, 0.5, 1e4], np.float32)
STD = np.array([3.0, 1e3, 1e-30, 1.0, 100.0], np.float32)
PLAIN = ObservationSpec.plain((5,), "float32")
ARCHITECTURE = build_architecture(
    "small", PLAIN, 3, (), (16, 8), "tanh", True,
    normalise_observations=True, normalise_returns=True,
)  # fmt: skip


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
    return (MEAN + STD * np.random.default_rng(0).normal(size=(64, 5))).astype(np.float32)


def test_a_network_in_half_precision_reads_its_observations_in_full() -> None:
    """bf16 has no number between 9984 and 10048, which are both observations here."""
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
    policy = _policy(1)
    x = torch.from_numpy(_observations())
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
        student.learn([Lessons((x,), teacher, taught)], renewed=True)
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
