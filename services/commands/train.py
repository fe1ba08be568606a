"""The commands that start a whole run on this machine: train and profile."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from aclearn.config import Config, load_config
from aclearn.errors import ConfigError, LearningLost
from aclearn.launch import StopFlag, install_stop_signals
from aclearn.runs import RunFolder, check_file
from services.commands.options import (
    ConfigArgument,
    ForceOption,
    OptionalConfigArgument,
    OverridesArgument,
)
from services.runtime.run_clock import STARTED_AT_VARIABLE, moment


def train(
    config: OptionalConfigArgument = None,
    overrides: OverridesArgument = None,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="environment instead of a configuration, e.g. CartPole-v1: the other keys are "
            "chosen by its spaces",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the run from its last checkpoint")
    ] = False,
) -> None:
    """Train on this machine: start every role, show the run, end every role."""
    os.environ.setdefault(STARTED_AT_VARIABLE, str(moment(time.monotonic())))
    with install_stop_signals() as stop:
        given = overrides or []
        if env is not None:
            given = [config, *given] if config is not None else given
            loaded = _start_from(env, given)
        elif config is not None:
            loaded = load_config(config, given)
        else:
            raise ConfigError("train: expected a configuration, e.g. cartpole, or --env ID")
        if resume:
            loaded = resumed_config(config or f"--env {env}", loaded, given)
        train_and_tell(loaded, resume=resume, stop=stop)
        if stop:
            raise typer.Exit(stop.exit_status)


def _start_from(env: str, overrides: Sequence[str]) -> Config:
    """The configuration for an environment; prints the chosen keys."""
    from services.commands.starting_point import start_from, words_of_choice

    if overrides and "=" not in overrides[0]:
        raise ConfigError(
            f"train: --env chooses the configuration, so {overrides[0]!r} cannot be another one; "
            "leave one of them out, or set env.id=… for the configuration"
        )
    config, spec, chosen = start_from(env, overrides)
    typer.echo(words_of_choice(config.env.id, spec, chosen))
    return config


def train_and_tell(config: Config, *, resume: bool, stop: StopFlag) -> None:
    """Run `config` on this machine until it is over; print how it ended and what comes next.

    Args:
        config: of the run.
        resume: continue the existing run; one that is over is not started.
        stop: set by signals; ends the run.

    Raises:
        AclearnError: the run cannot be started, a role died too often, or learning is lost.
    """
    # imported here: it takes a while
    from services.launcher.local_run import train as run
    from services.runtime.run_end import closing_words, next_commands, why_over

    if resume and (words := why_over(config)) is not None:
        typer.echo(words)
        return
    ending = run(config, resume=resume, stop=stop)
    if ending is None:
        return
    summary = ending.summary()
    if summary is not None:
        typer.echo(closing_words(config, summary))
    try:
        ending.checked_summary()
    except LearningLost as lost:
        if summary is not None or not stop:
            raise
        for text in getattr(lost, "__notes__", ()):
            typer.echo(f"aclearn: {text}", err=True)
        return
    if summary is not None:
        typer.echo(next_commands(config, summary))


def profile(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    seconds: Annotated[
        float, typer.Option(help="seconds to measure, after learning has begun")
    ] = 30.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="file for every figure")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Run CONFIG and print the cost of each part of an agent step."""
    os.environ.setdefault(STARTED_AT_VARIABLE, str(moment(time.monotonic())))
    from services.commands.profile import print_profile, write_json
    from services.commands.profile import profile as measure

    if json_file is not None:
        check_file(json_file, "--json", force=force)
        json_file = json_file.absolute()  # an environment may change the working directory
    with install_stop_signals() as stop:
        profile = measure(config, overrides or [], seconds=seconds, stop=stop, stream=sys.stderr)
    if profile is None:
        raise typer.Exit(stop.exit_status)
    print_profile(profile, sys.stdout)
    if json_file is not None:
        write_json(profile, json_file)


def resumed_config(
    path: str, given: Config, overrides: Mapping[str, Any] | Sequence[str]
) -> Config:
    """The configuration of the existing run, with this command's overrides.

    Prints the keys of the file at `path` with other values than the run's: they are ignored.
    """
    from services.runtime.role_folder import differences

    folder = RunFolder.open(Path(given.run.dir) / str(given.run.name))
    config = load_config(folder.config_path, overrides)
    if keys := [key for key, _, _ in differences(config, given)]:
        typer.echo(
            f"aclearn: the run keeps its own configuration; not taken from {path}: "
            f"{', '.join(keys)}. To change one for the rest of the run, give it as key=value",
            err=True,
        )
    return config
