"""The command sweep."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from aclearn.config import Config
from aclearn.errors import ConfigError, RunFolderError, RunFolderTaken, did_you_mean
from aclearn.extensions import search_modules_in
from aclearn.launch import StopFlag, install_stop_signals
from services.monitor.run_clock import STARTED_AT_VARIABLE, moment
from services.population.engine import ENGINES as ALL_ENGINES

#: Engines of single runs.
ENGINES: Final = {name: ALL_ENGINES[name] for name in ("local", "ray")}
_SETTINGS: Final = "settings.json"
_LOCK: Final = (".lock", "aclearn sweep", 0.5)


def sweep(
    file: Annotated[Path, typer.Argument(metavar="SWEEP.yaml", help="what is searched, and how")],
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the sweep of its name, else the newest one")
    ] = False,
    on: Annotated[
        str, typer.Option("--on", metavar="ENGINE", help=f"engine: {', '.join(ENGINES)}")
    ] = "local",
    at_once: Annotated[
        int | None,
        typer.Option("--at-once", min=1, help="most runs at a time; default: as the cores allow"),
    ] = None,
) -> None:
    """Search hyper-parameters: train runs with proposed values, keep the best configuration.

    Example: aclearn sweep sweep.yaml
    """
    os.environ.setdefault(STARTED_AT_VARIABLE, str(moment(time.monotonic())))
    with install_stop_signals() as stop:
        run_sweep(file, resume=resume, on=on, at_once=at_once, stop=stop)
        if stop:
            raise typer.Exit(stop.exit_status)


def run_sweep(file: Path, *, resume: bool, on: str, at_once: int | None, stop: StopFlag) -> Path:
    """Run the sweep of a file to its end; returns its folder.

    Raises:
        AclearnError: it cannot be started or continued, or no trial can be trained.
    """
    # imported here: they take a while
    from aclearn.extensions import make_extension
    from aclearn.runs import SWEEP_BEST
    from services.population.engine import Engine
    from services.sweep.proposals import Proposals, import_optuna
    from services.sweep.settings import load_sweep
    from services.sweep.sweep import Sweep, words_of

    settings = load_sweep(file)
    config = settings.config_of({})
    import_optuna()
    if on not in ENGINES:
        near = did_you_mean(on, ENGINES)
        raise ConfigError(f"--on: expected one of {', '.join(ENGINES)}, got {on!r:.50}{near}")
    search_modules_in(config.run.pythonpath)
    engine: Any = make_extension(
        on,
        {"config": config, "stop": stop, "at_once": at_once},
        key="--on",
        expected=Engine,  # type: ignore[type-abstract]
        ours=ENGINES,
    )
    with ExitStack() as stack:
        stack.callback(engine.close)
        folder = (_existing_folder if resume else _new_folder)(settings, config, stack)
        running = Sweep(
            folder,
            settings,
            Proposals(folder, settings),
            engine,
            at_once=lambda: engine.at_once,
            stop=stop,
            note=lambda text: print(text, flush=True),
        )
        print(f"sweep {folder}", flush=True)
        best = running.run()
    if stop:
        print(f"sweep {folder.name} ended: {stop.reason}; --resume continues it", flush=True)
    if best is not None:
        words = f"{best.newest:.4g}, trial {best.number} ({words_of(best.values)})"
        print(f"best: {words}\nnext: aclearn train {folder / SWEEP_BEST}", flush=True)
    return folder


def _new_folder(settings: Any, config: Config, unlock: ExitStack) -> Path:
    """A new folder of the sweep with its settings; one of a command killed here is taken."""
    from aclearn.runs import lock_new, make_next, write_atomically

    dir, name = Path(config.run.dir), settings.name
    try:
        path = make_next(dir, _experiment(config)) if name is None else dir / name
        lock = lock_new(path, _LOCK)
        if lock is not None:
            unlock.callback(lock.close)
            write_atomically(path / _SETTINGS, _text_of(settings).encode())
    except OSError as error:
        raise RunFolderError(
            f"a folder for the sweep cannot be made in {dir} ({error.strerror}); choose "
            "another run.dir (set: {run.dir: …})"
        ) from error
    if lock is None:
        advice = "continue it with --resume, or " if (path / _SETTINGS).is_file() else ""
        raise RunFolderTaken(f"{path} exists already; {advice}give another name")
    return path


def _existing_folder(settings: Any, config: Config, unlock: ExitStack) -> Path:
    """The folder of a sweep of the same search, to continue it."""
    from aclearn.runs import FolderLock, numbered_runs

    dir = Path(config.run.dir)
    named = [dir / settings.name] if settings.name else numbered_runs(dir, _experiment(config))
    found = [each for each in named if (each / _SETTINGS).is_file()]
    if not found:
        raise RunFolderError(f"there is no sweep of {settings.config} in {dir} to continue")
    path = found[0]
    try:
        before = json.loads((path / _SETTINGS).read_text())
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path / _SETTINGS} cannot be read ({error})") from error
    if differing := ", ".join(_differing(before, json.loads(_text_of(settings)))):
        raise ConfigError(
            f"the sweep in {path} searches otherwise; only trials may change. Give it the same "
            f"{differing}, or start a new sweep without --resume"
        )
    unlock.callback(FolderLock(path, _LOCK).close)
    return path


def _experiment(config: Config) -> str:
    return f"{config.experiment}-sweep"


def _text_of(settings: Any) -> str:
    """What must be the same in a sweep that is continued."""
    given = {
        "sweep": settings.model_dump(exclude={"trials", "name", "config", "set"}),
        "config": settings.base.model_dump(by_alias=True),  # its file may be edited later
    }
    return json.dumps(given, default=str)


def _differing(one: Any, other: Any, key: str = "") -> Iterator[str]:
    """Dotted keys whose values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from _differing(one.get(name), other.get(name), f"{key}.{name}" if key else name)
    elif one != other:
        yield key
