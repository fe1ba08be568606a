"""`aclearn check-env`: tries the contract on an environment and says what to mend."""

from __future__ import annotations

from typing import Annotated

import typer

from aclearn.config import config_of_keys
from services.commands.options import OverridesArgument


def check_env(
    env: Annotated[
        str, typer.Argument(metavar="ID", help="e.g. CartPole-v1, or my_env:make of your own")
    ],
    overrides: OverridesArgument = None,
) -> None:
    """Check an environment: results, numbers, ends, seeds, speed, and what to mend."""
    from services.start.probe import check_environment

    config = config_of_keys({"env.id": env}, overrides or [])
    spec, report = check_environment(config)
    typer.echo(f"{config.env.id}: observations {spec.observation}; {spec.action}")
    for mark, texts in (("ok", report.fine), ("look", report.advice), ("MEND", report.mend)):
        for text in texts:
            typer.echo(f"{mark:5} {text}")
    if report.mend:
        raise typer.Exit(1)
