"""The commands that write shipped configurations and new keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aclearn.config import shipped_config, shipped_configs, summary_of
from aclearn.errors import ConfigError
from aclearn.runs import check_file, write_file
from aclearn.wire import create_keys
from services.commands.options import ForceOption


def configs(
    name: Annotated[
        str | None,
        typer.Argument(
            help="configuration to print, e.g. pong", autocompletion=lambda: list(shipped_configs())
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="file to write it to")] = None,
    force: ForceOption = False,
) -> None:
    """List the configurations that come with aclearn, or print one of them."""
    if name is None:
        if to is not None:
            raise ConfigError(f"--to: which configuration? E.g. aclearn configs pong --to {to}")
        for each, path in shipped_configs().items():
            typer.echo(f"{each:21} {summary_of(path)}")
        return
    data = shipped_config(name).read_bytes()
    if to is None:
        typer.echo(data, nl=False)
        return
    check_file(to, "--to", force=force)
    write_file(to, data, "--to")
    typer.echo(f"wrote {to}; aclearn train {to}")


def keys(
    directory: Annotated[Path, typer.Argument(help="folder for the new key file")],
) -> None:
    """Make the keys for roles on several machines (network.keys_dir)."""
    typer.echo(f"wrote {create_keys(directory)}; copy it to every machine, and keep it secret")
