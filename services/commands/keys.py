"""`aclearn keys`: the keys of a cluster, and who may use them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aclearn.errors import ConfigError
from aclearn.wire import add_key, create_keys, load_list, revoke_key, rotate_keys
from services.roles import KEY_ROLES

DirectoryOption = Annotated[
    Path, typer.Option("--dir", help="folder of the keys, where the monitor runs")
]
NameArgument = Annotated[str, typer.Argument(help="name of the key, e.g. actor or rack7")]

keys = typer.Typer(
    no_args_is_help=True,
    help="Make, list, revoke and rotate the keys of roles on several machines (network.keys_dir).",
)


@keys.command()
def new(directory: DirectoryOption = Path("keys")) -> None:
    """Make a key for each kind of role, and the list of them."""
    files = create_keys(directory, KEY_ROLES)
    typer.echo(f"wrote {len(files)} keys to {directory}; keep them secret, and copy to another")
    typer.echo(f"machine only those of its roles, e.g. {directory / 'actor.key'}")


@keys.command()
def add(
    name: NameArgument,
    role: Annotated[
        list[str] | None,
        typer.Option(help=f"what it is for, may be given again: {', '.join(KEY_ROLES)}"),
    ] = None,
    directory: DirectoryOption = Path("keys"),
    processes: Annotated[
        int | None, typer.Option(min=1, help="most processes of it in the run")
    ] = None,
    unrolls_per_s: Annotated[
        float | None, typer.Option(min=0.001, help="most unrolls a second of all its processes")
    ] = None,
) -> None:
    """Make one more key, for instance for the actors of one host."""
    roles = role or ["actor"]
    if unknown := sorted(set(roles) - set(KEY_ROLES)):
        raise ConfigError(
            f"--role: {unknown[0]!r:.50} is no role; expected one of {', '.join(KEY_ROLES)}"
        )
    if "monitor" in roles:
        raise ConfigError("--role: the monitor has one key, monitor; leave it out")
    path = add_key(directory, name, roles, processes=processes, unrolls_per_s=unrolls_per_s)
    typer.echo(f"wrote {path}; copy it to the machine of its roles, and remove it here")


@keys.command()
def revoke(name: NameArgument, directory: DirectoryOption = Path("keys")) -> None:
    """Take a key off the list; a running monitor ends its connections within two seconds."""
    revoke_key(directory, name)
    typer.echo(f"revoked {name}")


@keys.command()
def rotate(
    names: Annotated[
        list[str] | None, typer.Argument(help="names of keys; default: all that are not revoked")
    ] = None,
    directory: DirectoryOption = Path("keys"),
    grace: Annotated[
        float,
        typer.Option(min=0.0, max=31e6, help="seconds in which the old ones are good as well"),
    ] = 3600.0,
) -> None:
    """Make new pairs for keys; running roles take them as soon as their file is replaced."""
    files, missing = rotate_keys(directory, names or (), grace_s=grace)
    typer.echo(f"wrote {', '.join(path.name for path in files)} to {directory}")
    typer.echo(f"copy them to their machines within {grace:g} s; then the old ones are refused")
    for name in missing:
        typer.echo(
            f"{name} cannot learn the monitor's new key: its file is not here; make it a new pair "
            f"with `aclearn keys rotate {name}`"
        )


@keys.command(name="list")
def list_(directory: DirectoryOption = Path("keys")) -> None:
    """Show the keys: what they are for, and since when they are not valid."""
    now = time.time()
    table = Table("name", "roles", "processes", "unrolls/s", "state", box=None, pad_edge=False)
    for name, key in load_list(directory).keys.items():
        ends = [each.until - now for each in key.public if each.until is not None]
        state = "allowed" if key.public else "revoked"
        if coming := [left for left in ends if left > 0]:
            state += f", an old pair for {max(coming):.0f} s more"
        bounds = (str(bound or "-") for bound in (key.processes, key.unrolls_per_s))
        table.add_row(Text(name), Text(", ".join(key.roles)), *bounds, Text(state))
    Console(width=120).print(table)
