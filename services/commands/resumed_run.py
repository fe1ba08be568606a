"""The run that `aclearn train --resume` continues, and its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from aclearn.config import Config, load_config, override_keys
from aclearn.errors import ConfigError, RunFolderError
from aclearn.runs import RunFolder, numbered_runs
from services.start.folder import check_same_run, differences

Overrides = Mapping[str, Any] | Sequence[str]


def resumed_config(source: str, given: Config, overrides: Overrides = ()) -> Config:
    """The configuration of the existing run, with this command's overrides.

    Prints which run it is, if `given` names none, and the keys of `given` with other values than
    the run's: they are ignored.

    Args:
        source: of `given`, for the message.

    Raises:
        AclearnError: there is no such run, or an override is wrong.
    """
    if given.run.name is not None:
        folder = RunFolder.open(Path(given.run.dir) / given.run.name)
    else:
        folder = newest_run(given, seed_given="run.seed" in override_keys(overrides))
        typer.echo(f"aclearn: resuming {folder.path}", err=True)
    config = load_config(folder.config_path, overrides)
    tell_not_taken(source, config, given)
    return config


def tell_not_taken(source: str, config: Config, given: Config) -> None:
    """Print the keys of `given`, read from `source`, with other values than the run's `config`."""
    if keys := [key for key, _, _ in differences(config, given)]:
        typer.echo(
            f"aclearn: the run keeps its own configuration; not taken from {source}: "
            f"{', '.join(keys)}. To change one for the rest of the run, give it as key=value",
            err=True,
        )


def newest_run(given: Config, *, seed_given: bool = False) -> RunFolder:
    """The newest numbered run of a configuration's experiment and environment.

    Runs that have learned something come first, then those of configurations in the same folder.

    Args:
        seed_given: whether the run must have the seed of `given`.

    Raises:
        ConfigError: all runs of the experiment have another environment or seed.
        RunFolderError: it has no run.
    """
    found: list[tuple[bool, bool, RunFolder, int]] = []
    refusal: ConfigError | None = None
    for path in numbered_runs(given.run.dir, given.experiment):
        try:
            folder = RunFolder.open(path)
            there = load_config(folder.config_path).run
            check_same_run(given, folder, groups=("env",))
        except RunFolderError:  # no run folder
            continue
        except ConfigError as error:
            refusal = refusal or error
            continue
        beside = there.pythonpath == given.run.pythonpath
        found.append((folder.has_learned, beside, folder, there.seed))
    if not found and refusal is not None:
        raise refusal
    if not found:
        raise RunFolderError(
            f"there is no run of {given.experiment} in {given.run.dir} to continue; start one "
            "without --resume, or give its run.name"
        )
    wanted = [each for each in found if not seed_given or each[3] == given.run.seed]
    if not wanted:
        *_, newest, seed = found[0]
        raise ConfigError(
            f"there is no run of {given.experiment} with run.seed={given.run.seed} in "
            f"{given.run.dir}; the newest, {newest.name}, has run.seed={seed}. Leave out the seed, "
            "or give run.name"
        )
    return max(wanted, key=lambda each: each[:2])[2]  # the first of equal ones: the newest
