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
