"""Memories: the layers of cells against torch's own, and an unroll against step after step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aclearn.policies import Architecture, describe_architecture
from aclearn.policies.layers import needed_by
from aclearn.policies.network import PolicyNetwork
from aclearn.policies.policy_module import PolicyModule
from aclearn.types import Memory, ObservationSpec

_KINDS = pytest.mark.parametrize("kind", ["lstm", "gru"])


def _network(kind: str, **settings: Any) -> PolicyNetwork:
    plain = ObservationSpec.plain((3,), "float32")
    architecture = describe_architecture(
        "mlp", observation=plain, actions=2, memory=Memory(kind, 8, 2), **settings
    )
    return PolicyNetwork(architecture, seed=0)


def _torchs(kind: str, network: PolicyNetwork) -> Any:
    """torch's module with the weights of the network's cells."""
    module: Any = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](64, 8, 2)
    given = dict(network.named_parameters())
    for i in range(2):
        of = {"ih": f"memory.{i}.input", "hh": f"memory.{i}.recurrent"}
        for short, name in of.items():
            getattr(module, f"weight_{short}_l{i}").data = given[f"{name}.weight"].data
            bias = getattr(module, f"bias_{short}_l{i}")
            bias.data = given[f"{name}.bias"].data if f"{name}.bias" in given else bias.data * 0
    return module


@_KINDS
def test_the_cells_are_those_of_torch(kind: str) -> None:
    network = _network(kind)
    observations = torch.randn(7, 5, 3)
    found: list[Tensor] = []
    state: tuple[Tensor, ...] = ()
    given: list[Tensor] = []
    for row in observations:
        outputs = network.outputs(row, state=state, every_layer=True)
        given.append(outputs["hidden.1.tanh"])
        found.append(outputs["memory.1.output"])
        state = tuple(outputs[each.next] for each in network.states)
    expected, _ = _torchs(kind, network)(torch.stack(given))
    torch.testing.assert_close(torch.stack(found), expected)


@_KINDS
@pytest.mark.parametrize("separate_value", [True, False])
def test_an_unroll_is_its_steps_one_after_another(kind: str, separate_value: bool) -> None:
    network = _network(kind, separate_value=separate_value)
    observations = {"observation": torch.randn(7, 5, 3)}
    starts = torch.rand(7, 5, generator=torch.Generator().manual_seed(0)) < 0.3
    state = tuple(torch.randn(5, units) for units in network.architecture.state)
    in_one, by_step = (
        unroll(network, observations, state, starts)
        for unroll in (PolicyNetwork.unroll, PolicyModule.unroll)
    )
    assert in_one.value is not None and by_step.value is not None
    torch.testing.assert_close(in_one.parameters, by_step.parameters)
    torch.testing.assert_close(in_one.value, by_step.value)
    torch.testing.assert_close(in_one.state, by_step.state)
    for output in (in_one, by_step):
        output.value.sum().backward()  # type: ignore[union-attr]
    assert all(weight.grad is not None for weight in network.memory.parameters())  # type: ignore[operator, union-attr]


def test_a_forget_gate_begins_open() -> None:
    bias = _network("lstm").get_submodule("memory.1.input").get_parameter("bias")
    assert [part.unique().tolist() for part in bias.chunk(4)] == [[0], [1], [0], [0]]


def test_a_state_needs_the_layers_of_its_next_value() -> None:
    architecture = _network("lstm").architecture
    assert Architecture.from_dict(architecture.to_dict()) == architecture
    assert architecture.state == (8, 8, 8, 8)
    read = {layer.name for layer in needed_by(architecture.layers, "memory.0.state")}
    assert {"memory.0.cell", "memory.0.recurrent", "hidden.0"} <= read
    assert "memory.1.cell" not in read and "policy" not in read


@_KINDS
def test_under_autocast_cells_keep_their_digits_in_steps_and_unrolls_alike(kind: str) -> None:
    network = _network(kind)
    observations = torch.randn(7, 5, 3)
    starts = torch.rand(7, 5, generator=torch.Generator().manual_seed(0)) < 0.3
    state = tuple(torch.randn(5, units) for units in network.architecture.state)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        outputs = network.outputs(observations[0], state=state, every_layer=True)
        given = {"observation": observations}
        in_one, by_step = (
            unroll(network, given, state, starts)
            for unroll in (PolicyNetwork.unroll, PolicyModule.unroll)
        )
    assert outputs["hidden.0"].dtype == torch.bfloat16
    names = [each.name for each in network.states]
    with torch.no_grad():
        exact = network.get_submodule("memory.1.recurrent")(state[names.index("memory.1.state")])
    torch.testing.assert_close(outputs["memory.1.recurrent"], exact)
    assert outputs["memory.1.output"].dtype == torch.float32
    # the layers before compute other numbers of rows at a time, in bf16
    torch.testing.assert_close(in_one.parameters, by_step.parameters, atol=1e-3, rtol=0)
    torch.testing.assert_close(in_one.state, by_step.state, atol=1e-3, rtol=0)
