"""The contract of a policy in torch: `step` for acting, `unroll` for learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from aclearn.types import PolicyOutput


class PolicyModule(nn.Module, ABC):
    """A policy as a torch module: it defines `step`, from which `unroll` follows."""

    @abstractmethod
    def step(
        self, observations: Mapping[str, Tensor], state: tuple[Tensor, ...] = ()
    ) -> PolicyOutput[Tensor]:
        """The policy's output for observations, leaf → `[B, *shape]`.

        Args:
            observations: of B environments at one step.
            state: float32 `[B, …]` each, after their last step; `()` stands for zeros.
        """

    def unroll(
        self, observations: Mapping[str, Tensor], state: tuple[Tensor, ...], starts: Tensor
    ) -> PolicyOutput[Tensor]:
        """The output of T steps in a row, time-major, with the state after the last.

        By default step after step; override it if fewer passes are possible.

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
    """The state `[B, …]` with zeros in the rows where an episode starts (`starts` `[B]`)."""
    return tuple(part.masked_fill(starts.view(-1, *(1,) * (part.ndim - 1)), 0.0) for part in state)


def _stacked(parts: Sequence[Tensor | None]) -> Tensor | None:
    found = [part for part in parts if part is not None]
    return torch.stack(found) if found else None
