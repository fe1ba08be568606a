"""The contract of a policy in torch: stepped where it acts, unrolled where it learns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from aclearn.types import PolicyOutput


class PolicyModule(nn.Module, ABC):
    """A policy as a torch module: `step` is its own, and `unroll` follows from it."""

    @abstractmethod
    def step(
        self, observations: Mapping[str, Tensor], state: tuple[Tensor, ...] = ()
    ) -> PolicyOutput[Tensor]:
        """What the policy says of observations, leaf → `[B, *shape]`.

        Args:
            observations: of B environments at one step.
            state: float32 `[B, …]` each, after their last step; `()` stands for zeros.
        """

    def unroll(
        self, observations: Mapping[str, Tensor], state: tuple[Tensor, ...], starts: Tensor
    ) -> PolicyOutput[Tensor]:
        """The same of T steps in a row, time-major; the output's state is that after the last.

        Here step after step. A policy that can do it in fewer passes overrides it.

        Args:
            observations: leaf → `[T, B, *shape]`.
            state: before the first step.
            starts: `[T, B]` bool, observations that begin an episode: the state before is zeroed.
        """
        outputs: list[PolicyOutput[Tensor]] = []
        for t, begins in enumerate(starts):
            at_t = {name: leaf[t] for name, leaf in observations.items()}
            outputs.append(self.step(at_t, zeroed_state(state, begins)))
            state = outputs[-1].state
        parameters, values, qs, _ = zip(*outputs, strict=True)
        return PolicyOutput(torch.stack(parameters), _stacked(values), _stacked(qs), state)


def zeroed_state(state: tuple[Tensor, ...], starts: Tensor) -> tuple[Tensor, ...]:
    """`[B, …]` each, with zeros in the rows where `starts` `[B]` says that an episode starts."""
    return tuple(part.masked_fill(starts.view(-1, *(1,) * (part.ndim - 1)), 0.0) for part in state)


def _stacked(parts: Sequence[Tensor | None]) -> Tensor | None:
    found = [part for part in parts if part is not None]
    return torch.stack(found) if found else None
