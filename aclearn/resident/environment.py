"""The definition of an environment that runs where the policy runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aclearn.envs.spaces import read_actions
from aclearn.errors import ConfigError, EnvironmentFailure, words_of
from aclearn.resident.warp_setup import wp
from aclearn.types import EnvSpec, ObservationSpec

#: What draws one environment: the numbers of its state by name → picture `[H, W, 3]` uint8.
Draw = Callable[[Mapping[str, NDArray[Any]]], NDArray[np.uint8]]


@wp.struct
class NoParams:
    """The parameters of an environment without any."""

    unused: wp.int32


@dataclass(frozen=True)
class SharedColumns:
    """The last columns of observations are a row of one table.

    Attributes:
        row: int32 field of the state, the number of the row.
        table: from the parameters to a Warp array `[rows, columns]` of float32.
    """

    row: str
    table: Callable[[Any], Any]


@dataclass(frozen=True)
class ResidentEnv:
    """An environment as Warp functions; the engine makes kernels of it.

    Attributes:
        name: in messages.
        state: a Warp struct: all that changes in an episode, without arrays.
        reset: `(rng, params) → state`, the first state of an episode.
        step: `(state, action, rng, params) → state, reward, terminated`. The action is an int of a
            Discrete space, else a Warp vector: of int32 choices, or of float32 numbers that lie
            within their bounds (the choices of a mixed space come first).
        observe: `(state, params) → observation`, a Warp vector of D float32.
        observation_space: a flat Box.
        action_space: Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a Dict or Tuple of
            these.
        time_limit: agent steps after which an episode is truncated.
        params: a Warp struct of all that stays the same; it may have arrays.
        make_params: `(device, **config) → params`, with arrays on `device`; None: of zeros.
        shared: what all environments see of the same; None: nothing. It saves work.
        draw: the fields of one state by name → picture `[H, W, 3]` uint8; None: there is none.
        length_key: the keyword that sets `time_limit` where the rules depend on it; nothing else
            may change it then. None: they do not.

    `rng` is a generator's state, of which `wp.randf(rng)` and the like draw. A function has its own
    copy: pass numbers, not `rng`, to functions of yours.

    Raises:
        EnvironmentFailure: a space is not supported, or there is no time limit.
    """

    name: str
    state: Any
    reset: Any
    step: Any
    observe: Any
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    time_limit: int
    params: Any = NoParams
    make_params: Callable[..., Any] | None = None
    shared: SharedColumns | None = None
    draw: Draw | None = None
    length_key: str | None = None

    def __post_init__(self) -> None:
        check_observations(self.name, self.observation_space)
        read_actions(self.action_space, self.name)
        check_time_limit(self.name, self.time_limit)

    @cached_property
    def observation_size(self) -> int:
        """D."""
        assert self.observation_space.shape is not None
        return int(self.observation_space.shape[0])

    @cached_property
    def observation_type(self) -> Any:
        """A Warp vector of D float32."""
        return wp.types.vector(self.observation_size, wp.float32)

    def configured(self, device: str, config: Mapping[str, Any]) -> Any:
        """The kernels' parameters for these keys of `make_params`.

        Raises:
            ConfigError: a key or a value does not fit.
        """
        make = self.make_params or (lambda device: self.params())
        return params_of(self.name, make, (device,), config)

    def spec(self, *, squash: bool = False) -> EnvSpec:
        """Observations and actions, for a policy.

        Args:
            squash: as `env.squash_actions`.

        Raises:
            EnvironmentFailure: the actions have no bounds for `squash`.
        """
        return EnvSpec(
            ObservationSpec.plain((self.observation_size,), "float32"),
            read_actions(self.action_space, self.name, squash=squash),
        )


def check_observations(name: str, space: spaces.Space[Any]) -> None:
    """Raise `EnvironmentFailure` unless the observations are a flat Box of float32."""
    flat = isinstance(space, spaces.Box) and len(space.shape) == 1
    if not flat or space.dtype != np.float32:
        raise EnvironmentFailure(
            f"resident environment {name}: its observations are {space}; expected a Box of float32 "
            "with one axis"
        )


def check_time_limit(name: str, time_limit: int) -> None:
    """Raise `EnvironmentFailure` unless it is a number of agent steps."""
    if not isinstance(time_limit, int) or time_limit < 1:
        raise EnvironmentFailure(
            f"resident environment {name}: time_limit: expected at least 1 agent step, got "
            f"{time_limit}; without one an episode might never end"
        )


def params_of(
    name: str, make: Callable[..., Any], given: tuple[Any, ...], config: Mapping[str, Any]
) -> Any:
    """What `make` makes of `given` and the keys of `config`.

    Raises:
        ConfigError: a key or a value does not fit.
    """
    try:
        return make(*given, **config)
    except (TypeError, ValueError) as error:
        takes = ", ".join(list(inspect.signature(make).parameters)[len(given) :]) or "none"
        raise ConfigError(
            f"resident environment {name}: {words_of(error)}; its keys are {takes}"
        ) from error
