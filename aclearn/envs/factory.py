"""Makes a group of environments, or reads their specification."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aclearn.envs.gymnasium_vector_env import GymnasiumVectorEnv
from aclearn.envs.lookup import maker, vector_maker
from aclearn.envs.parallel_vector_env import ParallelVectorEnv, is_parallel
from aclearn.envs.policy_envs import PolicyEnvs
from aclearn.envs.restarting import RestartingEnvs
from aclearn.envs.sync_vector_env import SyncVectorEnv
from aclearn.envs.torch_defaults import ENVIRONMENTS
from aclearn.envs.vector_env import VectorEnv
from aclearn.errors import ConfigError
from aclearn.types import DEFAULT_POLICY, EnvSpec

if TYPE_CHECKING:
    from aclearn.config import EnvConfig

_LOGGER = logging.getLogger(__name__)


def make_vector_env(
    env: EnvConfig,
    *,
    num_envs: int,
    seed: int = 0,
    step_timeout_s: float,
    max_faults: int,
    threads: int = 1,
) -> VectorEnv:
    """A group of `num_envs` environments that step together, not reset yet.

    Where agents have several policies, see `make_policy_envs`.

    Args:
        seed: environment b starts from seed + b, unless `reset` gets another seed.
        step_timeout_s: time limit of each call of one environment, see StepDeadline; for Atari
            games, of each call of the group, see Watchdog.
        max_faults: faults that the group survives within an hour; an Atari game survives none.

    Raises:
        EnvironmentFailure: it cannot be made or is of an unsupported kind.
    """
    if env.id.startswith("ALE/"):
        from aclearn.envs.atari import AtariEnvs  # the emulator is imported only for its games

        return AtariEnvs(
            env, num_envs=num_envs, seed=seed, threads=threads, step_timeout_s=step_timeout_s
        )
    if env.is_resident:
        return _resident(env, {}, num_envs, seed, threads)[DEFAULT_POLICY]
    limits: dict[str, Any] = {
        "seed": seed,
        "step_timeout_s": step_timeout_s,
        "max_faults": max_faults,
    }
    if env.is_vector:
        with ENVIRONMENTS:  # its module may set what its constructor needs
            make = vector_maker(env, num_envs)
        group = RestartingEnvs(make, name=env.id, count=1, **limits)
        return GymnasiumVectorEnv(group, env, num_envs=num_envs)
    group = _single_envs(env, num_envs, limits)
    kind = ParallelVectorEnv if is_parallel(group.envs[0]) else SyncVectorEnv
    return kind(group, env)


def make_policy_envs(
    env: EnvConfig,
    patterns: Mapping[str, Sequence[str]],
    *,
    num_envs: int,
    seed: int = 0,
    step_timeout_s: float,
    max_faults: int,
    threads: int = 1,
) -> dict[str, VectorEnv]:
    """Policy → the rows of its agents in a group of `num_envs` environments; see `PolicyEnvs`.

    Args:
        patterns: policy → patterns of its agents; empty: one policy plays all.

    Raises:
        ConfigError: an agent has no policy or several, or one policy's agents have other spaces.
        EnvironmentFailure: as of `make_vector_env`.
    """
    limits: dict[str, Any] = {
        "seed": seed,
        "step_timeout_s": step_timeout_s,
        "max_faults": max_faults,
    }
    if not patterns:
        group = make_vector_env(env, num_envs=num_envs, threads=threads, **limits)
        return {DEFAULT_POLICY: group}
    if env.is_resident:
        return _resident(env, patterns, num_envs, seed, threads)
    plain = not (env.is_vector or env.id.startswith("ALE/"))
    made = _single_envs(env, num_envs, limits) if plain else None
    if made is None or not is_parallel(made.envs[0]):
        if made is not None:
            made.close()
        raise ConfigError(
            f"policies: {env.id} has one agent, and several policies need as many; name a "
            "pettingzoo.ParallelEnv in env.id, or remove the section"
        )
    return PolicyEnvs(made, env, patterns).parts


def _resident(
    env: EnvConfig, patterns: Mapping[str, Sequence[str]], num_envs: int, seed: int, threads: int
) -> dict[str, VectorEnv]:
    # a layer above, and Warp is imported only for its environments
    group = pkgutil.resolve_name("aclearn.resident.vector_env:ResidentGroup")(
        env.id.partition(":")[2],
        patterns,
        num_envs=num_envs,
        seed=seed,
        threads=threads,
        squash=env.squash_actions,
        config=env.kwargs,
    )
    parts: dict[str, VectorEnv] = group.parts
    return parts


def _single_envs(env: EnvConfig, count: int, limits: Mapping[str, Any]) -> RestartingEnvs:
    with ENVIRONMENTS:  # its module may set what its constructor needs
        make = maker(env)
    return RestartingEnvs(make, name=env.id, count=count, **limits)


def read_spec(
    env: EnvConfig, *, patterns: Mapping[str, Sequence[str]] | None = None, timeout_s: float = 30.0
) -> EnvSpec:
    """The specification of an environment, which is made and closed again.

    Args:
        patterns: policy → patterns of its agents, where there are several policies.

    Raises:
        ConfigError: as of `make_policy_envs`.
        EnvironmentFailure: it cannot be made or is of an unsupported kind.
    """
    parts = make_policy_envs(
        env, patterns or {}, num_envs=1, seed=0, step_timeout_s=timeout_s, max_faults=0
    )
    made = next(iter(parts.values()))
    try:
        if patterns:
            return EnvSpec.joint(part.spec for part in parts.values())
        if made.spec.warning:
            _LOGGER.warning(made.spec.warning)
        return made.spec
    finally:
        made.close()
