"""What a policy answers at a step, in torch and in numpy alike, and the state that it keeps."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

ArrayT = TypeVar("ArrayT")

#: A policy's memory between two steps, float32 arrays `[B, …]`; `()` of one that has none. Where
#: there is none yet, `()` stands for zeros.
State = tuple[NDArray[np.float32], ...]


class PolicyOutput(NamedTuple, Generic[ArrayT]):
    """What a policy says of B observations; time-major `[T, B, …]` of T steps of them.

    Attributes:
        parameters: `[B, P]` float32, of the distribution of actions.
        value: `[B]` float32; None where the policy gives none.
        q: `[B, A]` float32, the actions' values; None where the policy gives none.
        state: float32 `[B, …]` after the (last) step; `()` of a policy without memory.
    """

    parameters: ArrayT
    value: ArrayT | None = None
    q: ArrayT | None = None
    state: tuple[ArrayT, ...] = ()


def zeroed(state: State, starts: NDArray[np.bool_]) -> State:
    """The state with zeros in the rows where `starts` `[B]` says that an episode starts."""
    if not state or not starts.any():
        return state
    return tuple(
        np.where(starts.reshape(-1, *(1,) * (part.ndim - 1)), np.float32(0), part) for part in state
    )
