"""What every group of environments gives: its shape, its steps, and their protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

#: Observations: uint8 images or float32 vectors.
Observations = NDArray[Any]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class EnvSpec:
    """What a policy must know of an environment.

    Attributes:
        observation_shape: images are channels-first, (S*C, H, W) with S stacked frames of C
            channels each, the newest frame last; everything else is flat, (D,).
        observation_dtype: "uint8" for images, "float32" for flat observations.
        actions: number of discrete actions; a group takes 0 to actions-1.
        frame_stack: S; 1 for flat observations.
        warning: a sentence for the user, where there is something to know; empty where not.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: str
    actions: int
    frame_stack: int
    warning: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able data; `from_dict` is its inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> EnvSpec:
        """The specification that `to_dict` described."""
        return cls(**{**data, "observation_shape": tuple(data["observation_shape"])})


@dataclass
class EnvStep:
    """One agent step of B environments.

    The arrays belong to the receiver: no later step writes to them.

    Attributes:
        observations: [B, *observation_shape], what the step really reached, also where the episode
            ended; at a reset step the first observation of the new episode.
        rewards: [B] float32, never clipped; 0 at a reset step.
        terminated: [B] bool, the episode came to its end; never set by a lost life.
        truncated: [B] bool, the episode was cut off by a time limit: its last observation still
            has a value to bootstrap from.
        life_lost: [B] bool, a life was lost in this step and the game was not over by it; may
            come together with truncated.
        reset: [B] bool, next-step autoreset: the previous step ended an episode, the action of
            this one was ignored, and nothing may be learned from it.
        faulted: [B] bool, implies reset: the environment failed in this step and was made again;
            its running episode must be dropped.
    """

    observations: Observations
    rewards: NDArray[np.float32]
    terminated: Bools
    truncated: Bools
    life_lost: Bools
    reset: Bools
    faulted: Bools


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
