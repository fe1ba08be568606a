"""The commands that start a whole run on this machine: train and profile."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from aclearn.config import Config, load_config
from aclearn.errors import LearningLost
from aclearn.launch import install_stop_signals
from aclearn.runs import RunFolder, check_file
from services.commands.options import ConfigArgument, ForceOption, OverridesArgument
from services.runtime.run_clock import STARTED_AT_VARIABLE, moment


def train(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the run from its last checkpoint")
    ] = False,
) -> None:
    """Train on this machine: start every role, show the run, end every role."""
    os.environ.setdefault(STARTED_AT_VARIABLE, str(moment(time.monotonic())))
    with install_stop_signals() as stop:
        # imported here: it takes a while
        from services.launcher.local_run import train as run
        from services.runtime.run_end import closing_words, why_over

        loaded = load_config(config, overrides or [])
        if resume:
            loaded = resumed_config(config, loaded, overrides or [])
            if (words := why_over(loaded)) is not None:
                typer.echo(words)
                return
        ending = run(loaded, resume=resume, stop=stop)
        if ending is not None:
            if (summary := ending.summary()) is not None:
                typer.echo(closing_words(loaded, summary))
            try:
                ending.checked_summary()
            except LearningLost as lost:
                if summary is not None or not stop:
                    raise
                for text in getattr(lost, "__notes__", ()):
                    typer.echo(f"aclearn: {text}", err=True)
        if stop:
            raise typer.Exit(stop.exit_status)


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


def resumed_config(path: str, given: Config, overrides: list[str]) -> Config:
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
