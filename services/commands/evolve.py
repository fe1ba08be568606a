"""The command evolve."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any

import typer

from aclearn.config import Config, load_config, override_keys, with_overrides
from aclearn.errors import ConfigError, did_you_mean
from aclearn.extensions import search_modules_in
from aclearn.launch import StopFlag, install_stop_signals
from services.commands.options import ConfigArgument, OverridesArgument
from services.commands.resumed_run import Overrides, tell_not_taken
from services.ending.words import as_given
from services.monitor.run_clock import STARTED_AT_VARIABLE, moment
from services.population.engine import ENGINES, Engine


def evolve(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="continue a population: that of run.name, else the newest of the configuration",
        ),
    ] = False,
    on: Annotated[
        str, typer.Option("--on", metavar="ENGINE", help=f"engine: {', '.join(ENGINES)}")
    ] = "local",
    at_once: Annotated[
        int | None,
        typer.Option(
            "--at-once", min=1, help="most members at a time; default: as the cores allow"
        ),
    ] = None,
) -> None:
    """Train members that evolve together: round by round the better ones replace the others.

    Example: aclearn evolve population/cartpole population.rounds=10
    """
    os.environ.setdefault(STARTED_AT_VARIABLE, str(moment(time.monotonic())))
    with install_stop_signals() as stop:
        evolve_and_tell(config, overrides or [], resume=resume, on=on, at_once=at_once, stop=stop)
        if stop:
            raise typer.Exit(stop.exit_status)


def _loaded(config: Config | str | Path, overrides: Overrides) -> Config:
    """The configuration, also of a population's folder, which may have been moved."""
    from services.population.folder import CONFIG_FILE

    if isinstance(config, Config):
        return with_overrides(config, overrides)
    folder = Path(config)
    if not (folder / CONFIG_FILE).is_file():
        return load_config(config, overrides)
    place = {"run.dir": str(folder.absolute().parent), "run.name": folder.absolute().name}
    return load_config(folder / CONFIG_FILE, {**override_keys(overrides), **place})


def evolve_and_tell(
    named: Config | str | Path,
    overrides: Overrides,
    *,
    resume: bool,
    on: str,
    at_once: int | None,
    stop: StopFlag,
    on_round: Callable[[dict[str, Any]], object] | None = None,
) -> Path:
    """Run a population until it is over; print how it ended and what comes next.

    Args:
        named: a configuration, its name or path, or a population's folder to resume it.
        overrides: of it; a resumed population gets them too.
        on_round: gets the metrics of each round; returning False ends the population.

    Returns:
        The folder of the population.

    Raises:
        AclearnError: it cannot be started or continued, or all members have died.
    """
    from aclearn.extensions import make_extension
    from aclearn.views.population_console import PopulationConsole
    from services.population import folder as folders
    from services.population.evolution import Evolution, begin

    config, source = _loaded(named, overrides), "the arguments"
    source = source if isinstance(named, Config) else str(named)
    if not config.population.enabled:
        raise ConfigError(
            f"evolve: {source} has no population; set population.members, for instance to 8, and "
            "the ranges of population.mutate"
        )
    if on not in ENGINES:
        near = did_you_mean(on, ENGINES)
        raise ConfigError(f"--on: expected one of {', '.join(ENGINES)}, got {on!r:.50}{near}")
    search_modules_in(config.run.pythonpath)
    path = None
    if resume:
        given, path = config, folders.existing_folder(config)
        there = load_config(path / folders.CONFIG_FILE)
        folders.refuse_other_population(path, there, config)
        config = with_overrides(there, override_keys(overrides)).with_run(
            dir=str(path.parent), name=path.name
        )
        folders.refuse_other_population(path, there, config)
        tell_not_taken(source, config, given)
    first = begin(config) if path is None else None
    engine = make_extension(
        on,
        {"config": config, "stop": stop, "at_once": at_once},
        key="--on",
        expected=Engine,  # type: ignore[type-abstract]
        ours=ENGINES,
    )
    console = PopulationConsole(config.population.rounds)
    with ExitStack() as unlock, closing(engine):  # the lock is released last
        if path is None:
            assert first is not None
            folder = folders.PopulationFolder.create(config, first)
        else:
            folder = folders.PopulationFolder.open(path, config)
        unlock.callback(folder.close)
        console.note(f"population {folder.path}")
        reason = Evolution(folder, engine, console, stop, on_round=on_round).run()
    console.note(f"population {folder.path.name} ended: {reason or stop.reason}; {folder.path}")
    if reason is None:
        console.note("--resume continues it")
    elif folder.lineage.best is not None:
        shown = shlex.quote(str(as_given(folder.path)))
        print(f"next: aclearn evaluate {shown}/best\n      aclearn plot {shown}", flush=True)
    return folder.path
