"""The configuration that the arguments of a call choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aclearn.config import Config, load_config, override_keys, with_overrides
from services.api.environment_names import environment_name

Overrides = Mapping[str, Any] | Sequence[str]


def configured(config: Config | str | Path | None, overrides: Overrides) -> Config:
    """A configuration, or that of a file or an experiment, with these keys."""
    if isinstance(config, Config):
        return with_overrides(config, overrides)
    return load_config(config, overrides)  # type: ignore[arg-type]  # it checks the type


def chosen(
    env: str | Callable[..., Any], overrides: Overrides, *, alone: bool | None = None
) -> Config:
    """The configuration that `--env` chooses; prints the chosen keys.

    Args:
        alone: whether the run is in this process; None: as `run.deterministic` says.
    """
    from services.commands.starting_point import tell_start_from

    given = override_keys(overrides)
    if alone is None:
        alone = given.get("run.deterministic") is True
    env_id, found = environment_name(env, alone=alone)
    return tell_start_from(env_id, {**found, **given})
