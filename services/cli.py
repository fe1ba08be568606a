"""The command line: everything is put together here."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from aclearn.config import (
    Config,
    load_config,
    shipped_config,
    shipped_configs,
    summary_of,
)
from aclearn.errors import AclearnError, ConfigError, LearningLost, RoleFailure, RunFolderError
from aclearn.launch import (
    EXIT_GIVE_UP,
    RESTARTS_VARIABLE,
    Interrupted,
    StopFlag,
    allow_many_connections,
    die_with_parent,
    install_stop_signals,
    raise_on_ctrl_c,
)
from aclearn.runs import WRITERS, check_file, write_file
from services.commands.train import resumed_config
from services.runtime.monitor_client import NumberTaken
from services.runtime.output import make_output_lossy
from services.runtime.role_name import ROLES, SINGLE_ROLES, ask_number, number_in
from services.runtime.run_clock import STARTED_AT_VARIABLE, moment

if TYPE_CHECKING:
    from services.runtime.role_context import RoleContext

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ForceOption = Annotated[bool, typer.Option("--force", help="replace the file that is there")]

container = typer.Typer(no_args_is_help=True, help="What docker-compose.yml calls.")
app.add_typer(container, name="container")

# text, not a path: pong is a shipped configuration, ./pong a file
ConfigArgument = Annotated[
    str,
    typer.Argument(
        help="YAML file, or the name of a shipped configuration, e.g. pong",
        autocompletion=lambda: list(shipped_configs()),
    ),
]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(help="key=value pairs, e.g. run.seed=2 actors.processes=4")
]


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


@app.command()
def train(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the run from its last checkpoint")
    ] = False,
) -> None:
    """Train on this machine: starts every role, shows the run, ends them all."""
    os.environ.setdefault(STARTED_AT_VARIABLE, str(moment(time.monotonic())))
    with install_stop_signals() as stop:
        # in here, since it takes a while
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
            summary, lost = ending.summary(), ending.lost()
            if summary is not None:
                typer.echo(closing_words(loaded, summary))
                if lost is not None:
                    raise LearningLost(lost)
            elif not stop:
                error = LearningLost(_without_summary(loaded))
                if lost is not None:
                    error.add_note(lost)
                raise error
            elif lost is not None:
                typer.echo(f"aclearn: {lost}", err=True)
        if stop:
            raise typer.Exit(stop.exit_status)


@app.command()
def role(
    name_of_role: Annotated[
        str,
        typer.Argument(metavar="ROLE", help=", ".join(ROLES), autocompletion=lambda: list(ROLES)),
    ],
    config: ConfigArgument,
    monitor: Annotated[str, typer.Option(help="the monitor's address, tcp:// or ipc://")],
    overrides: OverridesArgument = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="its role and a number, unique in the run: actor-3; else the monitor "
            "hands out the number"
        ),
    ] = None,
) -> None:
    """Run one role in this process; the monitor binds --monitor, the others connect to it."""
    _begin_role(name_of_role)
    with install_stop_signals() as stop:
        die_with_parent()  # which sets `stop`, so that also a parent's early death ends it in order
        loaded = load_config(config, overrides or [])
        _end_at_once(run_role(name_of_role, name, loaded, monitor, stop))


def _begin_role(name_of_role: str) -> None:
    if name_of_role not in ROLES:
        raise ConfigError(f"role {name_of_role!r} is unknown; expected one of {', '.join(ROLES)}")
    logging.basicConfig(
        level=logging.INFO,
        format="time=%(asctime)s level=%(levelname)s module=%(name)s %(message)s",
    )
    # before anything that may import torch: its thread pool reads this once
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _end_at_once(status: int) -> NoReturn:
    """End a role that has closed its sockets and files.

    The interpreter's own end takes a loaded torch apart object by object: up to a second on a busy
    core, of the ten that the end of a run may take.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run_role(
    role_name: str,
    name: str | None,
    config: Config,
    monitor: str,
    stop: StopFlag,
    *,
    contained: bool = False,
    note: str = "",
) -> int:
    """Run one role to its end; its exit status. Without a name the monitor hands out its number.

    The status of a monitor is 0, also where a signal ended it: it has ended the run.

    Raises:
        ConfigError: the name is not the role and a number.
    """
    while True:
        try:
            return _run_role(role_name, name, config, monitor, stop, contained=contained, note=note)
        except NumberTaken as taken:
            # all over again: seeds, environments and sockets go by the number
            logging.getLogger(__name__).warning("event=number_taken reason=%r", str(taken))


def _run_role(
    role_name: str,
    name: str | None,
    config: Config,
    monitor: str,
    stop: StopFlag,
    *,
    contained: bool,
    note: str,
) -> int:
    """The same; `NumberTaken` is raised where another process has the number handed out."""
    from services.runtime.health import open_health
    from services.runtime.preflight import check_role
    from services.runtime.role_context import RoleContext, exit_status
    from services.runtime.role_folder import role_folder
    from services.runtime.socket_directory import remove_if_orphaned

    number = None if name is None else number_in(role_name, name)
    if number is None and role_name in SINGLE_ROLES:
        number = 0
    restarts = int(os.environ.get(RESTARTS_VARIABLE, "0"))
    health = open_health(config, role_name, name or role_name, restarts)
    context = RoleContext(
        role_name,
        number or 0,
        config,
        monitor,
        None,
        stop,
        restarts,
        health,
        note=note,
        contained=contained,
    )
    allow_many_connections()
    with health or nullcontext():
        try:
            context.env_spec = check_role(context)
            if stop and role_name != "monitor":  # which tells in its summary why the run ended
                return exit_status(stop, run_is_over=False)
            # actors and predictors write nothing, and may be on a machine without the folder
            context.folder = role_folder(config, role_name) if role_name in WRITERS else None
            if number is None:
                number = ask_number(context)
                if number is None:
                    return exit_status(stop, run_is_over=False)
                context.index, context.number_given = number, True
            if health is not None:
                health.name = context.name
            return _run(context)
        finally:
            context.close()
            remove_if_orphaned(monitor)


def _run(context: RoleContext) -> int:
    # each role imports only what it needs: an actor loads torch for a torch runtime only
    if context.role == "monitor":
        from services.monitor.main import run_monitor

        run_monitor(context)
        return 0
    if context.role == "trainer":
        from services.trainer.main import run_trainer

        return run_trainer(context)
    if context.role == "predictor":
        from services.predictor.main import run_predictor

        return run_predictor(context)
    if context.role == "compressor":
        from services.compressor.main import run_compressor

        return run_compressor(context)
    from services.actor.main import run_actor

    return run_actor(context)


@container.command(name="role")
def container_role(
    name_of_role: Annotated[str, typer.Argument(metavar="ROLE", help=", ".join(ROLES))],
    config: ConfigArgument,
    monitor: Annotated[str, typer.Option(help="the monitor's address")],
    overrides: OverridesArgument = None,
) -> None:
    """Run one role as the only process of its container, as the owner of the current folder."""
    from services.runtime.container import run_contained

    _begin_role(name_of_role)
    with install_stop_signals() as stop:
        _end_at_once(run_contained(name_of_role, config, monitor, overrides or [], stop, run_role))


@container.command(name="keys")
def container_keys(
    directory: Annotated[Path, typer.Argument(help="folder of the key file")],
    runs: Annotated[Path, typer.Argument(help="folder of the run folders")],
) -> None:
    """Make keys where there are none; give them and RUNS to the owner of the current folder."""
    from services.runtime.container import make_keys

    make_keys(directory, runs, Path.cwd())


@app.command()
def health() -> None:
    """Say whether the role of this container is alive and useful: exit status 0, else 1."""
    from services.runtime.health import RUNTIME_DIR_VARIABLE, health_of

    directory = os.environ.get(RUNTIME_DIR_VARIABLE)
    if not directory:
        raise ConfigError(
            f"{RUNTIME_DIR_VARIABLE} is not set; set it to one folder for the role and for "
            "`aclearn health`, as the image does"
        )
    good, why = health_of(Path(directory), time.monotonic())
    typer.echo(why)
    raise typer.Exit(0 if good else 1)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="run folder, e.g. runs/pong-1")],
    episodes: Annotated[int, typer.Option(min=1, help="whole episodes to play")] = 20,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="take the most probable action, do not sample")
    ] = False,
    best: Annotated[
        bool, typer.Option("--best", help="the best checkpoint instead of the newest")
    ] = False,
    seed: Annotated[
        int,
        typer.Option(min=0, max=2**31 - 1, help="of environments and sampling"),
    ] = 1_000_003,
) -> None:
    """Play episodes with a run's policy and print its score."""
    from services.evaluator.evaluate import evaluate as play

    result = play(run, episodes=episodes, greedy=greedy, best=best, seed=seed)
    saved = result.saved_mean
    typer.echo(
        f"{result.checkpoint.stem}: {len(result.returns)} episodes, "
        f"return {result.mean:.2f} ± {result.deviation:.2f} "
        f"(least {min(result.returns):.0f}, most {max(result.returns):.0f}), "
        f"{'greedy' if greedy else 'sampled'}, after {result.updates} updates"
        + ("" if saved is None else f"; saved as the best, with a mean of {saved:.2f}")
    )


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="run folder, e.g. runs/pong-1")],
    to: Annotated[Path, typer.Option(help="file to write, e.g. policy.onnx")],
    chain: Annotated[str, typer.Option(help="e.g. prune=0.5,int8; nothing: as it is")] = "",
    passes: Annotated[
        int, typer.Option(min=1, help="times through the chain; a student learns in each")
    ] = 1,
    best: Annotated[
        bool, typer.Option("--best", help="the best checkpoint instead of the newest")
    ] = False,
    force: ForceOption = False,
) -> None:
    """Write a run's policy as a self-contained ONNX model, and check what it answers."""
    from services.commands.export import export_run

    artifact = export_run(run, to, words=chain, passes=passes, best=best, force=force)
    typer.echo(
        f"wrote {to}: {artifact.chain}, version {artifact.at.version}, {artifact.bytes:,} bytes of "
        f"weights, KL {artifact.fidelity.kl_mean:.3g} nats, same action on "
        f"{artifact.fidelity.agreement:.1%} of {artifact.fidelity.observations} observations that "
        "no link was fitted on"
    )


@app.command()
def compress(
    run: Annotated[Path, typer.Argument(help="run folder, e.g. runs/pong-1")],
    chain: Annotated[str, typer.Option(help="e.g. prune=0.5,int8")],
    episodes: Annotated[
        int,
        typer.Option(
            min=0, help="greedy episodes to play with each; 0: none, the last line stays empty"
        ),
    ] = 5,
    passes: Annotated[
        int, typer.Option(min=1, help="times through the chain; a student learns in each")
    ] = 1,
    best: Annotated[
        bool, typer.Option("--best", help="the best checkpoint instead of the newest")
    ] = False,
) -> None:
    """Compare a chain with the policy itself: size, speed, distance, score."""
    from rich.console import Console

    from services.commands.compress import compress_run, table_of

    ways = compress_run(run, chain, episodes=episodes, passes=passes, best=best)
    Console().print(table_of(ways))


@app.command()
def top(
    run: Annotated[Path, typer.Argument(help="run folder, e.g. runs/pong-1")],
    once: Annotated[
        bool, typer.Option("--once", help="print the newest figures once, also in a terminal")
    ] = False,
) -> None:
    """Show where a run's time goes, which role holds it up and what to change."""
    from services.commands.top import top as show

    with install_stop_signals() as stop:
        show(run, once=once, stream=sys.stdout, stop=stop)


@app.command()
def profile(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    seconds: Annotated[float, typer.Option(help="how long to measure, once it learns")] = 30.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="write every figure there")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Run CONFIG for a while and print what each part of an agent step costs."""
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


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(help="run folders")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="picture: .png, .pdf or .svg; by default RUN.png, RUN-tuner.png or, of several "
            "runs, returns.png in the current folder"
        ),
    ] = None,
    tuner: Annotated[
        bool, typer.Option("--tuner", help="what the tuner of one run tried and kept instead")
    ] = False,
    force: ForceOption = False,
) -> None:
    """Draw the return over time and over steps, several runs in one picture."""
    from aclearn.views import plot_runs, plot_tuner

    if tuner and len(runs) != 1:
        raise RunFolderError(f"--tuner draws one run, got {len(runs)}; name one run folder")
    if out is None:
        name = runs[0].resolve().name if len(runs) == 1 else "returns"
        out = Path(f"{name}-tuner.png" if tuner else f"{name}.png")
    check_file(out, "--out", force=force)
    if tuner:
        plot_tuner(runs[0], out)
    else:
        plot_runs(runs, out)
    typer.echo(f"wrote {out}")


@app.command()
def configs(
    name: Annotated[
        str | None,
        typer.Argument(help="print this one", autocompletion=lambda: list(shipped_configs())),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="file to write it to, to change it there")] = None,
    force: ForceOption = False,
) -> None:
    """List the configurations that come with aclearn, or print one of them."""
    if name is None:
        if to is not None:
            raise ConfigError(f"--to: which configuration? E.g. aclearn configs pong --to {to}")
        for each, path in shipped_configs().items():
            typer.echo(f"{each:16} {summary_of(path)}")
        return
    data = shipped_config(name).read_bytes()
    if to is None:
        typer.echo(data, nl=False)
        return
    check_file(to, "--to", force=force)
    write_file(to, data, "--to")
    typer.echo(f"wrote {to}; aclearn train {to}")


@app.command()
def keys(
    directory: Annotated[Path, typer.Argument(help="folder for the new key file")],
) -> None:
    """Make the keys that roles on several machines need (network.keys_dir)."""
    from aclearn.wire import create_keys

    typer.echo(f"wrote {create_keys(directory)}; copy it to every machine, and keep it secret")


def main() -> NoReturn:
    """Run the command line; a mistake of the user's is a message, not a traceback."""
    raise_on_ctrl_c()
    make_output_lossy()
    try:
        app(standalone_mode=True, prog_name="aclearn")  # which the shell's completion asks for
    except Interrupted:
        sys.exit(128 + signal.SIGINT)
    except (LearningLost, RoleFailure) as error:
        _fail(error, 1)
    except AclearnError as error:
        # what a user must mend: a supervisor need not try again
        _fail(error, EXIT_GIVE_UP)
    sys.exit(0)


def _fail(error: AclearnError, status: int) -> NoReturn:
    for text in (error, *getattr(error, "__notes__", ())):
        print(f"aclearn: {text}", file=sys.stderr)
    sys.exit(status)


def _without_summary(config: Config) -> str:
    path = Path(config.run.dir) / str(config.run.name)
    return (
        f"the run ended and {path / 'summary.json'} was not written: the log of the monitor in "
        f"{path / 'logs'} says why; {path / 'checkpoints'} has what was saved"
    )


if __name__ == "__main__":
    main()
