"""Arguments and options of several commands."""

from __future__ import annotations

from typing import Annotated

import typer

from aclearn.config import shipped_configs

# text, not a path: pong is a shipped configuration, ./pong a file
_CONFIG = typer.Argument(
    metavar="CONFIG",
    help="YAML file, or the name of a shipped configuration, e.g. pong",
    autocompletion=lambda: list(shipped_configs()),
)
ConfigArgument = Annotated[str, _CONFIG]
OptionalConfigArgument = Annotated[str | None, _CONFIG]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(help="key=value pairs, e.g. run.seed=2 actors.processes=4")
]
ForceOption = Annotated[bool, typer.Option("--force", help="replace an existing file")]
