"""What every group of environments gives: its shape, its steps, and their protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aclearn.types import EnvSpec, EnvStep
from aclearn.types.env_spec import Observations


def nothing() -> None:
    """What `VectorEnv.between_attempts` does until somebody wants a sign of life."""


class VectorEnv(Protocol):
    """B environments that step together; order and number never change.

    One thread at a time may use it. `send` and `recv` come in turns, after one `reset`; between
    them the caller is free to serve another group.

    Attributes:
        spec: shape of observations and number of actions.
        num_envs: B.
        faults: how often an environment failed and was made again, by reason.
        between_attempts: called between any two things that may each take the time-out of a step,
            the resets of single environments and what makes a failed one again, so that the caller
            can give a sign of life.
    """

    spec: EnvSpec
    num_envs: int
    faults: dict[str, int]
    between_attempts: Callable[[], None]

    def reset(self) -> Observations:
        """First observations [B, *observation_shape] of a new episode in every environment."""
        ...

    def send(self, actions: NDArray[np.int64]) -> None:
        """Take actions [B] int64 for the next step.

        Raises:
            ValueError: wrong shape or dtype, or an action outside 0 to spec.actions-1.
        """
        ...

    def recv(self) -> EnvStep:
        """The step that the last `send` started.

        Raises:
            EnvironmentFailure: the environments failed too often or for good.
        """
        ...

    def close(self) -> None:
        """End every environment; a second call does nothing."""
        ...


def check_actions(actions: NDArray[Any], *, num_envs: int, count: int) -> None:
    """Refuse actions that are not [num_envs] integers from 0 to count-1.

    Not a formality: ale-py 0.12.1 neither refuses nor ignores an action beyond its set but
    hangs in `recv` or ends the process.
    """
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
        raise ValueError(
            f"actions: expected integers of shape ({num_envs},), "
            f"got {actions.dtype} of shape {actions.shape}"
        )
    listed = actions.tolist()  # for some tens of actions faster than two reductions by numpy
    if min(listed) < 0 or max(listed) >= count:
        raise ValueError(f"actions: expected 0 to {count - 1}, got {listed}")
