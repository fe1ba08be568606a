"""`aclearn check-env`: tries the contract on an environment and says what to mend."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from aclearn.config import Config
from aclearn.envs.env_check import EnvReport
from services.commands.options import OverridesArgument

if TYPE_CHECKING:
    from aclearn.envs import VectorEnv

#: Seconds for steps with random actions, and environments in a group of Atari games.
_SECONDS, _GAMES = 5.0, 8


def check_env(
    env: Annotated[
        str, typer.Argument(metavar="ID", help="e.g. CartPole-v1, or my_env:make of your own")
    ],
    overrides: OverridesArgument = None,
) -> None:
    """Check an environment: spaces, dtypes, ends, seeds, speed, and what to mend."""
    from services.commands.starting_point import start_from

    # in a process of its own first: it may hang or crash
    config, spec, _ = start_from(env, overrides or [])
    typer.echo(f"{config.env.id}: observations {spec.observation}; {spec.action}")
    report = checked(config)
    for mark, texts in (("ok", report.fine), ("look", report.advice), ("MEND", report.mend)):
        for text in texts:
            typer.echo(f"{mark:5} {text}")
    if report.mend:
        raise typer.Exit(1)


def checked(config: Config) -> EnvReport:
    """The report on the configured environment.

    Raises:
        EnvironmentFailure: it cannot be made.
    """
    from aclearn.envs import env_check, make_vector_env
    from aclearn.envs.lookup import maker
    from aclearn.envs.sync_vector_env import SyncVectorEnv

    group = make_vector_env(
        config.env,
        num_envs=_GAMES,
        seed=1,
        step_timeout_s=config.actors.step_timeout_s,
        max_faults=0,
    )
    try:
        # groups of the emulator, of resident and of PettingZoo environments (a subclass), and those
        # that say which actions are allowed, are checked by themselves, step by step
        if type(group) is not SyncVectorEnv or group.spec.masked:
            return EnvReport(fine=[_speed(group)])
    finally:
        group.close()
    return env_check.check_env(
        maker(config.env), seconds=_SECONDS, step_timeout_s=config.actors.step_timeout_s
    )


def _speed(envs: VectorEnv) -> str:
    import numpy as np

    from aclearn.distributions import distribution_of

    distribution = distribution_of(envs.spec.action)
    rows, rng = envs.num_envs, np.random.default_rng(1)
    parameters = np.zeros((rows, distribution.parameter_count), np.float32)
    envs.reset()
    steps, begun = 0, time.monotonic()
    while (took := time.monotonic() - begun) < _SECONDS and steps < 1000 * rows:
        envs.send(distribution.sample(distribution.mask(parameters, envs.masks), rng)[0])
        envs.recv()
        steps += rows
    return f"{steps} steps with random actions, {steps / took:,.0f} steps/s in a group of {rows}"
