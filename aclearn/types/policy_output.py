"""A policy's output at a step, in torch and numpy, and its state."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

ArrayT = TypeVar("ArrayT")

#: A policy's state between two steps, float32 arrays `[B, …]`; `()` if it has none. `()` also
#: stands for zeros before the first step.
State = tuple[NDArray[np.float32], ...]


class PolicyOutput(NamedTuple, Generic[ArrayT]):
    """The output for B observations, or time-major `[T, B, …]` for T steps of them.

    Attributes:
        parameters: `[B, P]` float32, of the distribution of actions.
        value: `[B]` float32; None if the policy has none.
        q: `[B, A]` float32, the actions' values; None if the policy has none.
        state: float32 `[B, …]` after the (last) step; `()` for a policy without state.
    """

    parameters: ArrayT
    value: ArrayT | None = None
    q: ArrayT | None = None
    state: tuple[ArrayT, ...] = ()


def zeroed(state: State, starts: NDArray[np.bool_]) -> State:
    """The state with zeros in the rows where an episode starts (`starts` `[B]`)."""
    if not state or not starts.any():
        return state
    return tuple(
        np.where(starts.reshape(-1, *(1,) * (part.ndim - 1)), np.float32(0), part) for part in state
    )
