"""The commands that start a whole run on this machine: train and profile."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from aclearn.config import Config, load_config, override_keys
from aclearn.errors import ConfigError, LearningLost
from aclearn.launch import StopFlag, die_with_parent, install_stop_signals
from aclearn.runs import check_file, write_file
from services.commands.beside import dashboard_beside
from services.commands.options import (
    ConfigArgument,
    ForceOption,
    OptionalConfigArgument,
    OverridesArgument,
)
from services.commands.resumed_run import resumed_config
from services.monitor.run_clock import STARTED_AT_VARIABLE, moment


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
        bool,
        typer.Option(
            "--resume",
            help="continue a run: that of run.name, else the newest of the configuration",
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace the existing run of this run.name")
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N|LIST",
            help="a run for each of N seeds from run.seed on, or of a list, e.g. 5, or 1,4,7: all "
            "in one folder; --resume continues those that are not over",
        ),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            "--at-once",
            min=1,
            help="with --seeds: most runs at a time; default: as the cores allow",
        ),
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="where the roles run: local (this machine), or ray (the cluster of RAY_ADDRESS, "
            "else one of this machine)",
        ),
    ] = "local",
    dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard", help="show the runs of run.dir in a browser until the command ends"
        ),
    ] = False,
) -> None:
    """Train: start every role, show the run, end every role.

    Examples: aclearn train cartpole, aclearn train pong run.seed=2, aclearn train pong --seeds 5
    """
    os.environ.setdefault(STARTED_AT_VARIABLE, str(moment(time.monotonic())))
    with install_stop_signals() as stop:
        die_with_parent()  # of a run of --seeds
        given = overrides or []
        if config is not None and config.startswith("-"):
            override_keys([config, *given])  # says what is meant
        if env is not None:
            given = [config, *given] if config is not None else given
            loaded = _start_from(env, given)
        elif config is not None:
            loaded = load_config(config, given)
        else:
            raise ConfigError("train: expected a configuration, e.g. cartpole, or --env ID")
        check_start(loaded, resume=resume, overwrite=overwrite)
        if loaded.population.enabled and not resume:
            typer.echo(
                "aclearn: population: one run is trained; `aclearn evolve` trains the population",
                err=True,
            )
        source = str(config if env is None else f"--env {env}")
        if seeds is None and at_once is not None:
            raise ConfigError("--at-once is the number of runs of --seeds at a time; give --seeds")
        if seeds is not None and on != "local":
            raise ConfigError(
                f"--on {on}: the runs of --seeds are of this machine; leave one of them out"
            )
        with dashboard_beside(Path(loaded.run.dir), stop) if dashboard else nullcontext():
            if seeds is not None:
                # imported here for its 0.1 s
                from services.commands.seeds import read_seeds, train_seeds

                train_seeds(
                    loaded,
                    read_seeds(seeds),
                    source=source,
                    overrides=given,
                    at_once=at_once,
                    resume=resume,
                    overwrite=overwrite,
                    stop=stop,
                )
            else:
                if resume:
                    loaded = resumed_config(source, loaded, given)
                train_and_tell(loaded, resume=resume, overwrite=overwrite, stop=stop, on=on)
        if stop:
            raise typer.Exit(stop.exit_status)


def _start_from(env: str, overrides: Sequence[str]) -> Config:
    """The configuration for an environment; prints the chosen keys."""
    from services.commands.starting_point import tell_start_from

    if overrides and "=" not in overrides[0]:
        raise ConfigError(
            f"train: --env chooses the configuration, so {overrides[0]!r} cannot be another one; "
            "leave one of them out, or set env.id=… for the configuration"
        )
    return tell_start_from(env, overrides)


def check_start(config: Config, *, resume: bool, overwrite: bool) -> None:
    """Raise `ConfigError` unless these options go together."""
    if resume and overwrite:
        raise ConfigError("--resume continues a run and --overwrite replaces it; leave one out")
    if overwrite and config.run.name is None:
        raise ConfigError(
            "--overwrite replaces the run of a name: give run.name, or leave --overwrite out, and "
            "the run takes the next number"
        )


def train_and_tell(
    config: Config,
    *,
    resume: bool,
    overwrite: bool,
    stop: StopFlag,
    on_metrics: Callable[[dict[str, Any]], object] | None = None,
    on: str = "local",
) -> Path | None:
    """Run `config` until it is over; print how it ended and what comes next.

    Args:
        resume: continue the existing run; one that is over is not started.
        on_metrics: gets each new line of metrics; returning False ends the run.
        on: where the roles run.

    Returns:
        The run's folder; None if `stop` was set before its start.

    Raises:
        AclearnError: the run cannot be started, a role died too often, or learning is lost.
    """
    # imported here: it takes a while
    from services.ending.words import closing_words, next_commands, why_over
    from services.launcher.local_run import train as run

    # print, not typer.echo: that writes to the file below `sys.stdout` where it is ASCII
    if resume and (words := why_over(config)) is not None:
        print(words, flush=True)
        return Path(config.run.dir) / str(config.run.name)
    ending = run(
        config, resume=resume, overwrite=overwrite, stop=stop, on_metrics=on_metrics, on=on
    )
    if ending is None:
        return None
    config = config.with_run(name=ending.path.name)
    summary = ending.summary()
    if summary is not None:
        print(closing_words(config, summary), flush=True)
    try:
        ending.checked_summary()
    except LearningLost as lost:
        if summary is not None or not stop:
            raise
        for text in getattr(lost, "__notes__", ()):
            typer.echo(f"aclearn: {text}", err=True)
        return ending.path
    if summary is not None:
        print(next_commands(config, summary), flush=True)
    return ending.path


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
    from rich.console import Console

    from services.commands.profile import profile as measure
    from services.commands.step_profile import render

    if json_file is not None:
        check_file(json_file, "--json", force=force)
        json_file = json_file.absolute()  # an environment may change the working directory
    with install_stop_signals() as stop:
        profile = measure(config, overrides or [], seconds=seconds, stop=stop, stream=sys.stderr)
    if profile is None:
        raise typer.Exit(stop.exit_status)
    # a file has no width; the tables need 90 columns
    Console(width=None if sys.stdout.isatty() else 100).print(render(profile))
    if json_file is not None:
        figures = json.dumps(profile.to_dict(), indent=2)
        write_file(json_file, f"{figures}\n".encode(), "--json")
