"""`aclearn train`: which configuration a resumed run has, and the closing line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from aclearn.config import (
    Config,
    load_config,
)
from aclearn.runs import RunFolder

if TYPE_CHECKING:
    pass


def resumed_config(path: str, given: Config, overrides: list[str]) -> Config:
    """The configuration that the run had, with this command's overrides.

    Says which keys of the file at `path` the run has other values of: they are not taken over.
    """
    from services.runtime.role_folder import differences

    folder = RunFolder.open(Path(given.run.dir) / str(given.run.name))
    config = load_config(folder.config_path, overrides)
    if keys := [key for key, _, _ in differences(config, given)]:
        typer.echo(
            f"aclearn: the run keeps its own configuration; not taken from {path}: "
            f"{', '.join(keys)}. To change one for the rest of the run, give it as key=value",
            err=True,
        )
    return config
