"""The protocol of a group of environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from aclearn.types import ActionSpec, EnvSpec, EnvStep
from aclearn.types.env_spec import Observations


class VectorEnv(Protocol):
    """B environments that step together; order and number never change.

    One thread at a time may use it. `send` and `recv` come in turns, after one `reset`; between
    them the caller is free to serve another group.

    Attributes:
        spec: of its observations and actions.
        num_envs: B.
        faults: how often an environment failed and was made again, by reason.
        between_attempts: called between any two calls that may each take the time-out of a step,
            for a sign of life; does nothing until the caller sets it.
    """

    spec: EnvSpec
    num_envs: int
    faults: dict[str, int]
    between_attempts: Callable[[], None]

    def reset(self) -> Observations:
        """First observations, leaf → [B, *shape], of a new episode in every environment."""
        ...

    def send(self, actions: NDArray[Any]) -> None:
        """Take sampled actions [B] for the next step.

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

    def close(self) -> None:
        """End every environment; a second call does nothing."""
        ...


def env_actions(actions: NDArray[Any], action: ActionSpec, num_envs: int) -> Sequence[Any]:
    """Sampled actions of a group as its environments take them.

    Raises:
        ValueError: there is not one for each environment, or `action` does not have one of them.
    """
    if actions.shape != (num_envs, *action.shape):
        expected = (num_envs, *action.shape)
        raise ValueError(f"actions: expected shape {expected}, got {actions.shape}")
    return action.to_env(actions)
