"""A policy in torch gives the same output step by step and unrolled, with any state."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from aclearn.policies import describe_architecture
from aclearn.policies.network import PolicyNetwork
from aclearn.policies.policy_module import PolicyModule
from aclearn.types import OBSERVATION, ObservationSpec, PolicyOutput

T, B, D, H, A = 7, 3, 4, 5, 2


class Recurrent(PolicyModule):
    """A GRU cell and a counter of its steps; `unroll` is the default."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.policy, self.value = nn.GRUCell(D, H), nn.Linear(H, A), nn.Linear(H, 1)

    def step(self, observations, state=()):
        x = observations["x"]
        hidden, count = state or (torch.zeros(len(x), H), torch.zeros(len(x)))
        hidden, count = self.cell(x, hidden), count + 1
        value = self.value(hidden).squeeze(1) + count
        return PolicyOutput(self.policy(hidden), value, state=(hidden, count))


def _by_hand(network: Recurrent, x: torch.Tensor, starts: np.ndarray, hidden: torch.Tensor):
    """Each environment alone, its state set to zero where an episode starts."""
    parameters, values = torch.empty(T, B, A), torch.empty(T, B)
    last = torch.empty(B, H)
    for b in range(B):
        memory, count = hidden[b : b + 1], 10.0
        for t in range(T):
            if starts[t, b]:
                memory, count = torch.zeros(1, H), 0.0
            memory, count = network.cell(x[t, b : b + 1], memory), count + 1
            parameters[t, b] = network.policy(memory)[0]
            values[t, b] = network.value(memory)[0, 0] + count
        last[b] = memory[0]
    return parameters, values, last


def test_a_recurrent_policy_unrolls_to_what_its_steps_give_with_starts_in_the_middle() -> None:
    network = Recurrent()
    x = torch.randn(T, B, D, generator=torch.Generator().manual_seed(1))
    hidden = torch.randn(B, H, generator=torch.Generator().manual_seed(2), requires_grad=True)
    starts = np.zeros((T, B), np.bool_)
    starts[0, 0] = starts[3, 1] = starts[4, 1] = starts[6, 2] = True
    state = (hidden, torch.full((B,), 10.0))
    output = network.unroll({"x": x}, state, torch.from_numpy(starts))
    parameters, values, last = _by_hand(network, x, starts, hidden)
    torch.testing.assert_close(output.parameters, parameters)
    torch.testing.assert_close(output.value, values)
    torch.testing.assert_close(output.state[0], last)
    # steps since the episode began: environment 0 began at 0, 1 at 4, 2 at 6
    assert output.state[1].tolist() == [7.0, 3.0, 1.0]
    assert output.q is None
    # gradients flow through the state, but not across the start of an episode
    (reached,) = torch.autograd.grad(output.value[5].sum(), hidden)
    assert (reached[2] != 0).any() and (reached[:2] == 0).all()


def test_an_unroll_of_a_network_without_memory_is_its_steps() -> None:
    architecture = describe_architecture(
        "mlp", observation=ObservationSpec.plain((D,), "float32"), actions=A
    )
    network = PolicyNetwork(architecture, seed=3)
    leaves = {OBSERVATION: torch.randn(T, B, D, generator=torch.Generator().manual_seed(4))}
    starts = torch.zeros(T, B, dtype=torch.bool)
    output = network.unroll(leaves, (), starts)
    alone = PolicyModule.unroll(network, leaves, (), starts)
    assert (output.parameters.shape, output.value.shape) == ((T, B, A), (T, B))
    torch.testing.assert_close(output.parameters, alone.parameters)
    torch.testing.assert_close(output.value, alone.value)
    assert output.state == alone.state == ()
