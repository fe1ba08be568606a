"""`aclearn role`, and its counterparts in a container."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from aclearn.config import load_config
from aclearn.errors import ConfigError
from aclearn.launch import die_with_parent, install_stop_signals
from services.commands.options import ConfigArgument, OverridesArgument
from services.roles import ROLES, RoleSpec

RoleArgument = Annotated[
    str,
    typer.Argument(metavar="ROLE", help=", ".join(ROLES), autocompletion=lambda: list(ROLES)),
]

container = typer.Typer(no_args_is_help=True, help="Commands of docker-compose.yml.")


def begin_role(name: str) -> RoleSpec:
    """Prepare this process for a role, before its modules are imported.

    Raises:
        ConfigError: there is no such role.
    """
    if name not in ROLES:
        raise ConfigError(f"role {name!r} is unknown; expected one of {', '.join(ROLES)}")
    logging.basicConfig(
        level=logging.INFO,
        format="time=%(asctime)s level=%(levelname)s module=%(name)s %(message)s",
    )
    # before torch is imported: its thread pool reads this once
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return ROLES[name]


def role(
    name_of_role: RoleArgument,
    config: ConfigArgument,
    monitor: Annotated[str, typer.Option(help="address of the monitor, tcp:// or ipc://")],
    overrides: OverridesArgument = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="role and number, unique in the run, e.g. actor-3; default: the monitor "
            "assigns a number"
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="take part although settings that must be equal, such as env.id, differ from the "
            "run's",
        ),
    ] = False,
) -> None:
    """Run one role; the monitor binds the address --monitor, the others connect to it."""
    spec = begin_role(name_of_role)
    with install_stop_signals() as stop:
        die_with_parent()  # sets `stop` when the parent dies, for an end in order
        loaded = load_config(config, overrides or [])
        # imported here: it takes a while, in which signals are handled
        from services.start.run_role import end_process, run_role

        end_process(run_role(spec, name, loaded, monitor, stop, forced=force))


@container.command(name="role")
def container_role(
    name_of_role: RoleArgument,
    config: ConfigArgument,
    monitor: Annotated[str, typer.Option(help="address of the monitor")],
    overrides: OverridesArgument = None,
) -> None:
    """Run one role in its container, as the owner of the current folder."""
    spec = begin_role(name_of_role)
    # these imports take a while; until they are done a SIGTERM ends the process at once
    from services.container.container import run_contained
    from services.start.run_role import end_process, run_role

    with install_stop_signals() as stop:
        end_process(run_contained(spec, config, monitor, overrides or [], stop, run_role))


@container.command(name="keys")
def container_keys(
    directory: Annotated[Path, typer.Argument(help="folder of the key file")],
    runs: Annotated[Path, typer.Argument(help="folder of the run folders")],
) -> None:
    """Make missing keys; give them and RUNS to the owner of the current folder."""
    from services.container.container import make_keys

    make_keys(directory, runs, Path.cwd())


@container.command(name="dashboard")
def container_dashboard(
    dir: Annotated[Path, typer.Argument(metavar="RUNS_DIR", help="folder of the run folders")],
    host: Annotated[str, typer.Option(help="address to listen at")],
    port: Annotated[int, typer.Option(help="port to listen at")],
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="as of `aclearn dashboard`")
    ] = False,
) -> None:
    """Serve the dashboard in its container, as the owner of the current folder."""
    from services.commands.dashboard import dashboard
    from services.container.container import become_owner

    become_owner(Path.cwd())  # it reads the run folders and the cluster's keys
    dashboard(dir, host=host, port=port, allow_actions=allow_actions)
