"""A network of your own: checked by this program, then trained by the command below.

    PYTHONPATH=examples aclearn train cartpole policy.hidden=null \
        policy.architecture=own_network:Residual policy.arguments.width=64

docs/networks.md has the contract.
"""

from __future__ import annotations

import torch
from torch import nn

from aclearn.policies import check_policy
from aclearn.types import ObservationSpec


class Residual(nn.Module):
    """One body with residual blocks for policy and value."""

    def __init__(
        self, observation: ObservationSpec, parameters: int, width: int = 32, blocks: int = 2
    ) -> None:
        """Make the layers for these observations, and P numbers of the distribution of actions."""
        super().__init__()
        inputs = sum(torch.Size(leaf.shape).numel() for leaf in observation.values())
        self.first = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(blocks)
        )
        self.policy, self.value = nn.Linear(width, parameters), nn.Linear(width, 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)  # a nearly uniform first policy

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Observations `[B, D]` → parameters `[B, P]` and values `[B, 1]`."""
        x = self.first(observation)
        for block in self.blocks:
            x = x + block(x)
        return self.policy(x), self.value(x)


if __name__ == "__main__":
    check_policy(Residual, ObservationSpec.plain((4,), "float32"), 2, arguments={"width": 64})
    print("Residual keeps the contract")
