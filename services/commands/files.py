"""The command that writes shipped configurations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aclearn.config import shipped_config, shipped_configs, summary_of
from aclearn.config.schema import schema_line, schema_text
from aclearn.errors import ConfigError
from aclearn.runs import check_file, write_file
from services.commands.options import ForceOption


def configs(
    name: Annotated[
        str | None,
        typer.Argument(
            help="configuration to print, e.g. pong", autocompletion=lambda: list(shipped_configs())
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="file to write it to")] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="print the JSON schema of a configuration, for editors")
    ] = False,
    force: ForceOption = False,
) -> None:
    """List the configurations that come with aclearn, or print one of them."""
    if schema:
        if name is not None:
            raise ConfigError(f"--schema: it is that of every configuration; leave out {name!r}")
        data = schema_text().encode()
        if to is None:
            typer.echo(data, nl=False)
            return
        check_file(to, "--to", force=force)
        write_file(to, data, "--to")
        typer.echo(f"wrote {to}; first line of a configuration: {schema_line(to)}")
        return
    if name is None:
        if to is not None:
            raise ConfigError(f"--to: which configuration? E.g. aclearn configs pong --to {to}")
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for each, path in shipped_configs().items():
            table.add_row(Text(each), Text(summary_of(path)))
        # a file has no width: one line for each
        Console(width=None if sys.stdout.isatty() else 1000).print(table)
        return
    data = shipped_config(name).read_bytes()
    if to is None:
        typer.echo(data, nl=False)
        return
    check_file(to, "--to", force=force)
    write_file(to, data, "--to")
    typer.echo(f"wrote {to}; aclearn train {to}")
