"""Makes a group of environments, or reads their specification."""

from __future__ import annotations

import logging
import pkgutil
from typing import TYPE_CHECKING

from aclearn.envs.gymnasium_vector_env import GymnasiumVectorEnv
from aclearn.envs.lookup import maker, vector_maker
from aclearn.envs.parallel_vector_env import ParallelVectorEnv, is_parallel
from aclearn.envs.restarting import RestartingEnvs
from aclearn.envs.sync_vector_env import SyncVectorEnv
from aclearn.envs.torch_defaults import ENVIRONMENTS
from aclearn.envs.vector_env import VectorEnv
from aclearn.types import EnvSpec

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
    if env.id.startswith("resident:"):
        # a layer above, and Warp is imported only for its environments
        made: VectorEnv = pkgutil.resolve_name("aclearn.resident.vector_env:ResidentVectorEnv")(
            env.id.partition(":")[2],
            num_envs=num_envs,
            seed=seed,
            threads=threads,
            squash=env.squash_actions,
            config=env.kwargs,
        )
        return made
    with ENVIRONMENTS:  # its module may set what its constructor needs
        make = vector_maker(env, num_envs) if env.is_vector else maker(env)
    group = RestartingEnvs(
        make,
        name=env.id,
        count=1 if env.is_vector else num_envs,
        seed=seed,
        step_timeout_s=step_timeout_s,
        max_faults=max_faults,
    )
    if env.is_vector:
        return GymnasiumVectorEnv(group, env, num_envs=num_envs)
    kind = ParallelVectorEnv if is_parallel(group.envs[0]) else SyncVectorEnv
    return kind(group, env)


def read_spec(env: EnvConfig, *, timeout_s: float = 30.0) -> EnvSpec:
    """The specification of an environment, which is made and closed again.

    Raises:
        EnvironmentFailure: it cannot be made or is of an unsupported kind.
    """
    made = make_vector_env(env, num_envs=1, seed=0, step_timeout_s=timeout_s, max_faults=0)
    try:
        if made.spec.warning:
            _LOGGER.warning(made.spec.warning)
        return made.spec
    finally:
        made.close()
