"""`aclearn health`, which every container calls twice a minute: few imports, none of ours here."""

from __future__ import annotations

import time
from typing import Annotated

import typer


def health(
    alive: Annotated[
        bool,
        typer.Option("--alive", help="ask only whether it runs: 0 also for a role that waits"),
    ] = False,
) -> None:
    """Check the role of this container: exit status 0 if it works, else 1."""
    from services.container.health import health_of, reports_folder

    good, why = health_of(reports_folder(), time.monotonic(), alive=alive)
    typer.echo(why)
    raise typer.Exit(0 if good else 1)
