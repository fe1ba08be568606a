"""The command line, assembled from its commands."""

from __future__ import annotations

import importlib.metadata
import signal
import sys
from typing import Annotated, NoReturn

import typer

from aclearn.errors import AclearnError, LearningLost, RankLost, RoleFailure
from aclearn.launch import EXIT_GIVE_UP, Interrupted, raise_on_ctrl_c
from aclearn.launch.main_guard import mark_own_process
from services.commands.backtest import backtest
from services.commands.check_env import check_env
from services.commands.compare import compare, plot
from services.commands.dashboard import dashboard, report
from services.commands.evolve import evolve
from services.commands.files import configs
from services.commands.keys import keys
from services.commands.manifests import manifests, slurm
from services.commands.new import new
from services.commands.on_run_folders import (
    compress,
    ensemble,
    evaluate,
    export,
    publish,
    record,
    top,
)
from services.commands.output import forget_zero_size, make_output_lossy
from services.commands.replay import replay
from services.commands.role import container, health, role
from services.commands.runs import runs
from services.commands.sweep import sweep
from services.commands.train import profile, train

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
for command in (
    train,
    evolve,
    sweep,
    role,
    health,
    evaluate,
    record,
    replay,
    export,
    publish,
    compress,
    ensemble,
    top,
    profile,
    dashboard,
    report,
    plot,
    compare,
    backtest,
    runs,
    configs,
    new,
    check_env,
    manifests,
    slurm,
):
    # a misspelt option of `train` is answered with the key that may be meant
    app.command(context_settings={"ignore_unknown_options": command is train})(command)
app.add_typer(keys, name="keys")
app.add_typer(container, name="container")


def _print_version(asked: bool) -> None:
    if asked:
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
