"""The command line, assembled from its commands."""

from __future__ import annotations

import pkgutil
import signal
import sys
from collections.abc import Iterator, MutableMapping
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from aclearn.errors import AclearnError, LearningLost, RankLost, RoleFailure
from aclearn.launch import EXIT_GIVE_UP, Interrupted, raise_on_ctrl_c
from aclearn.launch.main_guard import mark_own_process
from services.commands.output import forget_zero_size, make_output_lossy

#: Command or group of commands → its module and name there.
_COMMANDS: Final = {
    "train": "services.commands.train:train",
    "evolve": "services.commands.evolve:evolve",
    "sweep": "services.commands.sweep:sweep",
    "role": "services.commands.role:role",
    "health": "services.commands.health:health",
    "evaluate": "services.commands.on_run_folders:evaluate",
    "record": "services.commands.on_run_folders:record",
    "replay": "services.commands.replay:replay",
    "export": "services.commands.on_run_folders:export",
    "publish": "services.commands.on_run_folders:publish",
    "compress": "services.commands.on_run_folders:compress",
    "ensemble": "services.commands.on_run_folders:ensemble",
    "top": "services.commands.on_run_folders:top",
    "profile": "services.commands.train:profile",
    "dashboard": "services.commands.dashboard:dashboard",
    "report": "services.commands.dashboard:report",
    "plot": "services.commands.compare:plot",
    "compare": "services.commands.compare:compare",
    "backtest": "services.commands.backtest:backtest",
    "runs": "services.commands.runs:runs",
    "configs": "services.commands.files:configs",
    "new": "services.commands.new:new",
    "check-env": "services.commands.check_env:check_env",
    "manifests": "services.commands.manifests:manifests",
    "slurm": "services.commands.manifests:slurm",
    "keys": "services.commands.keys:keys",
    "container": "services.commands.role:container",
}


class _Commands(MutableMapping[str, Any]):
    """The commands by name; each is imported when it is looked up.

    Every role is a process of its own, and every container asks for its health twice a minute: with
    the imports of all commands each would take another half a second of CPU.
    """

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            place = _COMMANDS[name]  # a KeyError says that there is no such command
            try:
                self._loaded[name] = _load(name, place)
            except KeyError as error:
                raise RuntimeError(f"{place} cannot be imported") from error
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


def _load(name: str, place: str) -> Any:
    found = pkgutil.resolve_name(place)
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    # a misspelt option of `train` is answered with the key that may be meant
    alone.command(name, context_settings={"ignore_unknown_options": name == "train"})(found)
    return typer.main.get_command(alone)


class _Group(TyperGroup):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands()


app = typer.Typer(cls=_Group, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        import importlib.metadata  # slow

        typer.echo(f"aclearn {importlib.metadata.version('aclearn')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="print the version"),
    ] = False,
) -> None:
    """Reinforcement learning with separate actors, predictors and trainers."""


def main() -> NoReturn:
    """Run the command line; user errors are messages without a traceback."""
    raise_on_ctrl_c()
    mark_own_process()
    make_output_lossy()
    forget_zero_size()
    try:
        app(standalone_mode=True, prog_name="aclearn")  # the shell's completion needs this name
    except Interrupted:
        sys.exit(128 + signal.SIGINT)
    except (LearningLost, RankLost, RoleFailure) as error:
        _fail(error, 1)
    except OSError as error:
        if error.filename is None or sys.argv[1:2] in (["role"], ["container"]):
            raise  # a fault of ours, or of a service, whose log shows where
        print(f"aclearn: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except AclearnError as error:
        # only the user can mend it: a supervisor must not try again
        _fail(error, EXIT_GIVE_UP)
    sys.exit(0)


def _fail(error: AclearnError, status: int) -> NoReturn:
    for text in (error, *getattr(error, "__notes__", ())):
        print(f"aclearn: {text}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
