"""The protocol of a group of environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aclearn.types import ActionSpec, EnvSpec, EnvStep
from aclearn.types.observation_spec import Observations


class VectorEnv(Protocol):
    """B environments that step together; order and number never change.

    One thread at a time may use it. After one `reset`, `send` and `recv` alternate; between them
    the caller may serve another group.

    Attributes:
        num_envs: B; of environments of several agents, the number of all agents.
        masks: `[B, A]` bool, the actions that are allowed after the last `reset` or `recv`; None:
            all. They belong to the receiver.
        faults: reason → number of failures after which an environment was made again.
        between_attempts: called between any two calls that may each take `step_timeout_s`, so that
            the caller can send heartbeats; the caller sets it.
    """

    spec: EnvSpec
    num_envs: int
    masks: NDArray[np.bool_] | None
    faults: dict[str, int]
    between_attempts: Callable[[], None]

    def reset(self, seed: int | None = None) -> Observations:
        """First observations, leaf → [B, *shape], of a new episode in every environment.

        Args:
            seed: environment b starts from seed + b; None: the first time as the group was made,
                then each environment continues with its own random numbers.
        """
        ...

    def send(self, actions: NDArray[Any]) -> None:
        """Take sampled actions [B, *shape] for the next step.

        Raises:
            ValueError: wrong shape or dtype, or an action that `spec.action` does not have.
        """
        ...

    def recv(self) -> EnvStep:
        """The step that the last `send` started.

        Raises:
            EnvironmentFailure: the environments failed too often or for good.
        """
        ...

    @property
    def picture_rate(self) -> float:
        """Pictures a second at which an episode looks as it is meant to."""
        ...

    def picture(self) -> Any:
        """The first environment now, `[H, W, 3]` uint8, if it was made as `drawn` says.

        Raises:
            EnvironmentFailure: it cannot be drawn.
        """
        ...

    def close(self) -> None:
        """Close every environment; a second call has no effect."""
        ...


def env_actions(actions: NDArray[Any], action: ActionSpec, num_envs: int) -> Sequence[Any]:
    """The environments' form of a group's sampled actions.

    Raises:
        ValueError: there is not one for each environment, or `action` does not have one of them.
    """
    if actions.shape != (num_envs, *action.shape):
        expected = (num_envs, *action.shape)
        raise ValueError(f"actions: expected shape {expected}, got {actions.shape}")
    return action.to_env(actions)
