"""Networks of a user's own, named `tests.support.own_networks:Name`."""

from __future__ import annotations

import torch
from torch import nn

from aclearn.policies import PolicyModule
from aclearn.types import ObservationSpec, PolicyOutput


def inputs(observation: ObservationSpec) -> int:
    return sum(torch.Size(leaf.shape).numel() for leaf in observation.values())


class Plain(nn.Module):
    """A module as most users have one: `forward` gives the parameters and the value."""

    def __init__(self, observation: ObservationSpec, parameters: int, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(inputs(observation), width), nn.LayerNorm(width), nn.SiLU()
        )
        self.policy, self.value = nn.Linear(width, parameters), nn.Linear(width, 1)
        nn.init.zeros_(self.policy.bias)
        nn.init.zeros_(self.body[1].bias)

    def forward(self, x):
        features = self.body(x)
        return self.policy(features), self.value(features)


class Baked(Plain):
    """A weight becomes a number of the exported graph."""

    def __init__(self, observation: ObservationSpec, parameters: int) -> None:
        super().__init__(observation, parameters)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        logits, value = super().forward(x)
        return logits * self.gain.item(), value * self.gain


class Attention(nn.Module):
    """An image's cells attend to each other, then a GRU reads them in order."""

    def __init__(self, observation: ObservationSpec, parameters: int) -> None:
        super().__init__()
        (leaf,) = observation.values()
        self.cells = nn.utils.parametrizations.weight_norm(nn.Conv2d(leaf.shape[0], 8, 4, 4))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.reader = nn.GRU(8, 8, batch_first=True)
        self.policy, self.value = nn.Linear(8, parameters), nn.Linear(8, 1)

    def forward(self, x):
        cells = torch.relu(self.cells(x)).flatten(2).transpose(1, 2)
        cells, _ = self.attention(cells, cells, cells, need_weights=False)
        read = self.reader(cells)[0][:, -1]
        return self.policy(read), self.value(read).squeeze(1)


class OfLeaves(PolicyModule):
    """A part for each leaf, and `step` in place of `forward`."""

    def __init__(self, observation: ObservationSpec, parameters: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Linear(torch.Size(leaf.shape).numel(), 8) for leaf in observation.values()
        )
        self.names = list(observation)
        self.policy, self.value = nn.Linear(8, parameters), nn.Linear(8, 1)
        self.register_buffer("halves", torch.full((8,), 0.5))

    def step(self, observations, state=()):
        read = (
            part(observations[name].flatten(1))
            for part, name in zip(self.parts, self.names, strict=True)
        )
        features = torch.tanh(sum(read)) * self.halves
        return PolicyOutput(self.policy(features), self.value(features).squeeze(1))


class Actions(Plain):
    def forward(self, x):
        logits, value = super().forward(x)
        return logits, value + logits


class Remembers(PolicyModule):
    """A GRU's cell, and a fading trace of the observations in two axes."""

    def __init__(self, observation: ObservationSpec, parameters: int, size: int = 5) -> None:
        super().__init__()
        self.size = size
        self.cell = nn.GRUCell(inputs(observation), size)
        self.trace = nn.Linear(inputs(observation), 6)
        self.decay = nn.Parameter(torch.full((2, 3), 0.5))
        self.policy, self.value = nn.Linear(size + 6, parameters), nn.Linear(size + 6, 1)

    def step(self, observations, state=()):
        x = torch.cat([leaf.flatten(1) for leaf in observations.values()], 1)
        h, trace = state or (x.new_zeros(x.shape[0], self.size), x.new_zeros(x.shape[0], 2, 3))
        h = self.cell(x, h)
        trace = torch.tanh(self.decay * trace + self.trace(x).unflatten(1, (2, 3)))
        read = torch.cat([h, trace.flatten(1)], 1)
        return PolicyOutput(self.policy(read), self.value(read).squeeze(1), state=(h, trace))


class RemembersQ(Remembers):
    def step(self, observations, state=()):
        found = super().step(observations, state)
        q = found.parameters + found.value[:, None]
        return PolicyOutput(found.parameters, q=q, state=found.state)


class BakedMemory(Remembers):
    """A weight becomes a number of the exported graph."""

    def __init__(self, observation: ObservationSpec, parameters: int) -> None:
        super().__init__(observation, parameters)
        self.gain = nn.Parameter(torch.ones(()))

    def step(self, observations, state=()):
        found = super().step(observations, state)
        value = found.value * self.gain
        return PolicyOutput(found.parameters * self.gain.item(), value, state=found.state)


class Unrolls(Remembers):
    """It computes the heads of all steps at once."""

    calls = 0

    def unroll(self, observations, state, starts):
        type(self).calls += 1
        outputs = []
        for t, begins in enumerate(starts):
            state = tuple(
                torch.where(begins.view(-1, *(1,) * (part.ndim - 1)), 0.0, part) for part in state
            )
            state = self.step({name: leaf[t] for name, leaf in observations.items()}, state).state
            outputs.append(torch.cat([part.flatten(1) for part in state], 1))
        read = torch.stack(outputs)
        return PolicyOutput(self.policy(read), self.value(read).squeeze(2), state=state)


class Layered(PolicyModule):
    """torch's LSTM, whose state has the layers in front."""

    def __init__(self, observation: ObservationSpec, parameters: int) -> None:
        super().__init__()
        self.cells = nn.LSTM(inputs(observation), 4, num_layers=2)
        self.policy, self.value = nn.Linear(4, parameters), nn.Linear(4, 1)

    def step(self, observations, state=()):
        x = torch.cat([leaf.flatten(1) for leaf in observations.values()], 1)
        # ours [B, layers, 4], torch's [layers, B, 4]
        given = tuple(part.transpose(0, 1).contiguous() for part in state)
        (h,), new = self.cells(x[None], given or None)
        new = tuple(part.transpose(0, 1) for part in new)
        return PolicyOutput(self.policy(h), self.value(h).squeeze(1), state=new)


class Latch(PolicyModule):
    """It solves `aclearn.envs.memory_tasks.Recall` from the start: its state is the sum of cues."""

    def __init__(self, observation: ObservationSpec, parameters: int) -> None:
        super().__init__()
        self.cues, self.gain = parameters, nn.Parameter(torch.tensor(20.0))

    def step(self, observations, state=()):
        shown = observations["observation"][:, : self.cues]
        cues = shown + state[0] if state else shown
        return PolicyOutput(self.gain * cues, self.gain * cues.sum(1), state=(cues,))
