"""Recurrent networks of a user's own as layers: steps, unrolls and a state of any shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from aclearn.policies import Architecture, users_architecture
from aclearn.policies.devices import cpu_has
from aclearn.policies.network import PolicyNetwork
from aclearn.policies.policy_module import PolicyModule
from aclearn.policies.users_description import describe_module
from aclearn.types import ActionSpec, LeafSpec, ObservationSpec
from tests.support import own_networks
from tests.support.own_networks import Unrolls

_LEAVES = ObservationSpec({"name": LeafSpec((3,), "float32"), "other": LeafSpec((2,), "float32")})
_TWO = ActionSpec.discrete(2)


def _network(name: str, critic: str = "v", **settings: Any) -> PolicyNetwork:
    module, said = describe_module(f"tests.support.own_networks:{name}", {}, _LEAVES, 2, critic)
    assert not said
    architecture = users_architecture(module, _TWO, **settings)
    network = PolicyNetwork(architecture, seed=0)
    if settings:  # statistics that change something
        for parameter in network.parameters():
            if not parameter.requires_grad:
                parameter.add_(torch.rand(parameter.shape))
    return network


def _observations(T: int, B: int) -> dict[str, Tensor]:
    return {name: torch.randn(T, B, *leaf.shape) for name, leaf in _LEAVES.items()}


def _users(name: str, network: PolicyNetwork) -> PolicyModule:
    """The user's class alone, with the weights that the network has."""
    module: PolicyModule = getattr(own_networks, name)(_LEAVES, 2)
    module.load_state_dict(network.get_submodule("network").state_dict())
    return module


def test_the_description_has_the_shapes_of_the_state() -> None:
    architecture = _network("Remembers").architecture
    again = Architecture.from_dict(json.loads(json.dumps(architecture.to_dict())))
    assert (again, again.digest(), again.state) == (architecture, architecture.digest(), (5, 6))
    module, _ = describe_module(
        "tests.support.own_networks:Remembers", {"size": 7}, _LEAVES, 2, "v"
    )
    assert module.state == ((7,), (2, 3))
    assert users_architecture(module, _TWO).digest() != architecture.digest()


@pytest.mark.parametrize("name", ["Remembers", "RemembersQ", "Unrolls"])
def test_an_unroll_is_that_of_the_module_alone(name: str) -> None:
    network = _network(name, critic="q" if name == "RemembersQ" else "v")
    observations, starts = _observations(6, 4), torch.rand(6, 4) < 0.3
    state = (torch.randn(4, 5), torch.randn(4, 2, 3))
    calls = Unrolls.calls
    found = network.unroll(observations, tuple(part.flatten(1) for part in state), starts)
    assert Unrolls.calls == calls + (name == "Unrolls")
    expected = PolicyModule.unroll(_users(name, network), observations, state, starts)
    torch.testing.assert_close(found[:3], expected[:3])
    torch.testing.assert_close(found.state, tuple(part.flatten(1) for part in expected.state))


@pytest.mark.parametrize("name", ["Remembers", "Unrolls"])
@pytest.mark.parametrize("normalised", [False, True])
def test_an_unroll_is_its_steps_with_their_gradients(name: str, normalised: bool) -> None:
    settings = dict.fromkeys(("normalise_observations", "normalise_returns"), normalised)
    network = _network(name, **settings)
    observations, starts = _observations(6, 4), torch.rand(6, 4) < 0.3
    state = (torch.randn(4, 5), torch.randn(4, 6))
    gradients = []
    found = []
    for unroll in (PolicyNetwork.unroll, PolicyModule.unroll):
        output = unroll(network, observations, state, starts)
        assert output.value is not None
        network.zero_grad()
        (output.parameters.square().sum() + output.value.square().sum()).backward()
        found.append(output)
        gradients.append({n: p.grad for n, p in network.named_parameters() if p.requires_grad})
    for mine, its in zip(*found, strict=True):
        torch.testing.assert_close(mine, its)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", ["Remembers", "Unrolls", "Layered"])
def test_half_precision_inside_stays_inside(name: str) -> None:
    if name == "Layered" and not cpu_has("bf16"):
        pytest.skip("torch has no LSTM of bf16 for this CPU")
    network = _network(name)
    observations, starts = _observations(6, 4), torch.rand(6, 4) < 0.3
    exact = network.unroll(observations, (), starts)
    with torch.autocast("cpu", torch.bfloat16):
        found = network.unroll(observations, (), starts)
    for mine, its in zip((*exact[:2], *exact.state), (*found[:2], *found.state), strict=True):
        torch.testing.assert_close(its, mine, rtol=0.0, atol=0.05)  # dtypes are equal too


def test_a_state_that_changes_its_shape_later_is_named() -> None:
    network = _network("Remembers")
    observations = {name: leaf[0] for name, leaf in _observations(1, 4).items()}
    users: Any = network.get_submodule("network")
    step = users.step
    users.step = lambda *given: step(*given)._replace(state=(torch.zeros(4, 9),))
    words = r"Remembers': its state has changed its shape: expected \[B, 5\] and \[B, 2, 3\] as "
    with pytest.raises(ValueError, match=words + r"after the first step, got \[B, 9\]"):
        network.step(observations)
