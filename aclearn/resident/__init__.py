"""Environments that run where the policy runs: on one device, without a copy (needs Warp)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from types import MappingProxyType
from typing import Any

from aclearn.config import Config
from aclearn.config.resident import RESIDENT_ENVS
from aclearn.errors import (
    ConfigError,
    EnvironmentFailure,
    did_you_mean,
    kind_of,
    words_of,
)
from aclearn.extensions import load_extension
from aclearn.resident.action_sampler import ActionSampler
from aclearn.resident.differences import ParityError, ParityReport
from aclearn.resident.engine import ResidentEnvs, Rollout
from aclearn.resident.environment import NoParams, ResidentEnv, SharedColumns
from aclearn.resident.environments import ENVIRONMENTS
from aclearn.resident.episodes import EpisodeSums
from aclearn.resident.parity import (
    GymnasiumReference,
    Reference,
    ReferenceStep,
    ResidentReference,
    check_resident,
)
from aclearn.resident.warp_setup import wp
from aclearn.resident.world import AgentKind, ResidentWorld
from aclearn.resident.world_parity import (
    PettingZooReference,
    ResidentWorldReference,
    WorldReference,
    WorldReferenceStep,
)
from aclearn.resident.worlds import ResidentWorlds, WorldStep

#: Ours that are made of their arguments.
_MADE_BY = {
    "Trading": "aclearn.resident.environments.trading:trading_env",
    "tag_gridworld": "aclearn.resident.environments.tag_gridworld:tag_gridworld",
    "tag_continuous": "aclearn.resident.environments.tag_continuous:tag_continuous",
    "covid": "aclearn.resident.environments.covid:covid",
}
#: The one of `env.kwargs` that is no parameter of an environment.
_TIME_LIMIT = "time_limit"


def find_env(
    name: str, arguments: Mapping[str, Any] = MappingProxyType({})
) -> ResidentEnv | ResidentWorld:
    """Our environment of this name, or that of a user: `module:NAME`.

    Args:
        arguments: keys of its parameters, and `time_limit`, as of `make`. A function that makes the
            environment, such as that of "Trading", is called with the keys, and with `time_limit`
            if it has a parameter of this name; `make_params` then gets only those that it takes.

    Raises:
        ConfigError: there is a `time_limit`, and the environment has a key of its own for it.
        EnvironmentFailure: there is none, or it cannot be made of these arguments.
    """
    if name in ENVIRONMENTS:
        return _with_arguments(ENVIRONMENTS[name], arguments)
    ours = (*ENVIRONMENTS, *_MADE_BY)
    if ":" not in name and name not in _MADE_BY:
        raise EnvironmentFailure(
            f"there is no resident environment {name!r}{did_you_mean(name, ours) or '.'} "
            f"Ours are {', '.join(ours)}; yours is module:NAME"
        )
    full = _MADE_BY.get(name, name)
    found = load_extension(full, key="resident environment", error=EnvironmentFailure)
    is_made = inspect.isfunction(found)
    if is_made:
        own = inspect.signature(found).parameters
        keys = {k: value for k, value in arguments.items() if k != _TIME_LIMIT or k in own}
        try:
            found = found(**keys)
        except TypeError as error:
            raise EnvironmentFailure(
                f"resident environment {name!r} cannot be made ({words_of(error)}); its arguments "
                "are env.kwargs"
            ) from error
    if not isinstance(found, ResidentEnv | ResidentWorld):
        raise EnvironmentFailure(
            f"resident environment {name!r} is {kind_of(found)}, expected a ResidentEnv or a "
            "ResidentWorld"
        )
    if is_made:
        arguments = {
            key: value
            for key, value in arguments.items()
            if key == _TIME_LIMIT or _takes(found.make_params, key)
        }
    return _with_arguments(found, arguments)


def _takes(function: Callable[..., Any] | None, key: str) -> bool:
    parameters = {} if function is None else inspect.signature(function).parameters
    return key in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _with_arguments(
    env: ResidentEnv | ResidentWorld, arguments: Mapping[str, Any]
) -> ResidentEnv | ResidentWorld:
    """The environment with this `time_limit`, whose parameters have the other keys.

    Raises:
        ConfigError: there is a `time_limit`, and the environment has a key of its own for it.
    """
    keys = {**arguments}
    time_limit = keys.pop(_TIME_LIMIT, None)
    if time_limit is not None:
        if env.length_key:
            raise ConfigError(
                f"resident environment {env.name}: time_limit: its rules depend on the length of "
                f"an episode; set {env.length_key} instead"
            )
        env = replace(env, time_limit=time_limit)
    if not keys:
        return env
    make = env.make_params or (lambda *given: env.params())

    @wraps(make)  # a message names its keys
    def make_params(*given: Any, **config: Any) -> Any:
        return make(*given, **keys | config)

    return replace(env, make_params=make_params)


def named_by_gymnasium(id: str) -> ResidentEnv | None:
    """Our environment with the rules of gymnasium's `id`; None if there is none."""
    return next(
        (ENVIRONMENTS[ours] for ours, theirs in RESIDENT_ENVS.items() if theirs == id), None
    )


def resident_env_of(config: Config) -> ResidentEnv | ResidentWorld:
    """The resident environment of `resident.env` or `env.id`, with `env.kwargs`.

    Raises:
        ConfigError: there is none for `env.id`; also as of `find_env`.
        EnvironmentFailure: as of `find_env`.
    """
    if config.resident.env is not None:
        return find_env(config.resident.env, config.env.kwargs)
    prefix, _, name = config.env.id.partition(":")
    if prefix == "resident":
        return find_env(name, config.env.kwargs)
    found = named_by_gymnasium(config.env.id)
    if found is None:
        raise ConfigError(
            f"resident.env: there is no resident environment for env.id {config.env.id}; set it to "
            "one with the same rules, module:NAME"
        )
    return _with_arguments(found, config.env.kwargs)


def make(
    name: str | ResidentEnv | ResidentWorld,
    *,
    envs: int,
    device: str = "auto",
    seed: int = 0,
    threads: int | None = None,
    squash: bool = False,
    time_limit: int | None = None,
    observe: bool = True,
    **config: Any,
) -> ResidentEnvs | ResidentWorlds:
    """`envs` copies of an environment, to be stepped with torch tensors.

    `reset()` returns observations `[N, D]`, `step(actions)` observations, rewards, terminated and
    truncated; with A agents observations are `[N, A, D]` and a step is a `WorldStep`. These tensors
    are the environments' own: the next step overwrites them. Resets are at the next step, as in
    gymnasium's vector environments.

    Args:
        name: of ours, `module:NAME` of yours (an environment, or a function that makes one of
            `config`), or the environment itself.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:N".
        seed: of everything that is drawn.
        threads: of the CPU; None: one for each core.
        squash: as `env.squash_actions`.
        time_limit: agent steps after which episodes are truncated; None: the environment's own.
            Environments with a key for it, such as `episode_length`, take only that.
        observe: make observations. With several agents, False saves the work and the memory where
            nobody reads them; they are zeros then.

    Raises:
        AclearnError: there is no such environment or device, the memory is too small, or a key of
            `config` does not fit.
    """
    arguments = {**config, _TIME_LIMIT: time_limit}
    env = find_env(name, arguments) if isinstance(name, str) else _with_arguments(name, arguments)
    return copies_of(
        env,
        envs=envs,
        device=device,
        seed=seed,
        threads=threads,
        squash=squash,
        **({} if observe or isinstance(env, ResidentEnv) else {"observe": False}),
    )


def copies_of(
    env: ResidentEnv | ResidentWorld, *, envs: int, **settings: Any
) -> ResidentEnvs | ResidentWorlds:
    """`envs` copies of an environment; `settings` are those of `ResidentEnvs`."""
    if isinstance(env, ResidentWorld):
        return ResidentWorlds(env, envs=envs, **settings)
    return ResidentEnvs(env, envs=envs, **settings)


__all__ = [
    "ENVIRONMENTS",
    "ActionSampler",
    "AgentKind",
    "EpisodeSums",
    "GymnasiumReference",
    "NoParams",
    "ParityError",
    "ParityReport",
    "PettingZooReference",
    "Reference",
    "ReferenceStep",
    "ResidentEnv",
    "ResidentEnvs",
    "ResidentReference",
    "ResidentWorld",
    "ResidentWorldReference",
    "ResidentWorlds",
    "Rollout",
    "SharedColumns",
    "WorldReference",
    "WorldReferenceStep",
    "WorldStep",
    "check_resident",
    "copies_of",
    "find_env",
    "make",
    "named_by_gymnasium",
    "resident_env_of",
    "wp",
]
