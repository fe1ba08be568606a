"""The rows of environments whose agents have equal spaces."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aclearn.resident.buffers import Buffers
from aclearn.resident.sampling import Sampler
from aclearn.resident.warp_setup import wp
from aclearn.types import EnvSpec


@dataclass(frozen=True, eq=False)
class Rows:
    """Row e·A + j belongs to agent j of a kind of A agents in environment e.

    Attributes:
        name: of the kind.
        first_agent: number of its first agent among all.
        spec: of its agents.
        buffers: the last steps.
        held: how many numbers of an observation kernels hold when they choose: all, or only the
            first of a long one, which nothing but torch reads then.
    """

    name: str
    first_agent: int
    spec: EnvSpec
    sampler: Sampler
    buffers: Buffers
    held: int

    @property
    def agents(self) -> int:
        """A."""
        return self.spec.agents

    @property
    def observation_type(self) -> Any:
        """A Warp vector of the `held` float32."""
        return wp.types.vector(self.held, wp.float32)

    def arrays(self) -> list[Any]:
        """The buffers but for masks as Warp arrays, as `rollout_kernel` takes them."""
        b = self.buffers
        return [
            wp.from_torch(b.observations[..., : self.held], dtype=self.observation_type),
            wp.from_torch(b.actions, dtype=self.sampler.sampled),
            *map(wp.from_torch, (b.log_probs, b.rewards, b.terminated, b.truncated, b.valid)),
        ]

    def by_agent(self, rows: Tensor) -> Tensor:
        """`[N·A, …]` as `[N, A, …]`."""
        return rows.view(len(rows) // self.agents, self.agents, *rows.shape[1:])

    def check_choices(self, given: Tensor, name: str) -> None:
        """Refuse actions `[N, A, …]` with a choice that there is not.

        Kernels may index arrays with choices, so one out of range would read foreign memory.

        Args:
            name: of the environments.

        Raises:
            ValueError: there is one.
        """
        counts = self.spec.action.counts
        by_number = given.view(*given.shape[:2], -1)[..., : len(counts)]
        most = torch.tensor(counts, dtype=given.dtype, device=given.device)
        wrong = ~((by_number >= 0) & (by_number < most))  # true for NaN
        if not wrong.any():
            return
        environment, agent, number = wrong.nonzero()[0].tolist()
        whose = f", agent {self.spec.agent_names[agent]}" if self.spec.agent_names else ""
        which = f", number {number}" if len(counts) > 1 else ""
        raise ValueError(
            f"actions: {name}, environment {environment}{whose}{which}: expected a choice from 0 "
            f"to {counts[number] - 1}, got {by_number[environment, agent, number].item()}"
        )
