"""The run folder of roles started one by one: the first makes it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from aclearn.config import Config, canonical_yaml, config_from_yaml
from aclearn.errors import CheckpointError, ConfigError, RunFolderError
from aclearn.launch import PARENT_PID_VARIABLE
from aclearn.runs import (
    Checkpoint,
    FolderLock,
    RunFolder,
    load_checkpoint,
    load_newest,
    lock_all,
    lock_role,
)
from aclearn.types import AUTO
from services.role.automatic import is_automatic
from services.roles import WRITERS

_LOGGER = logging.getLogger(__name__)

#: Seconds for another role to fill the run folder that it is making.
_FILLED_WITHIN_S = 5.0
#: Groups of the configuration that define a run: another value means another run.
_OF_THE_RUN = ("env", "policy", "policies")
#: Of a policy's own keys those that may be others when a run is resumed.
_OF_LEARNING = ("loss", "correctors", "optimiser", "init_from")
#: Keys that differ for the same run, seen from another folder or machine.
_PLACES = ("run.dir", "run.name", "run.experiment", "run.pythonpath")


def role_folder(config: Config, role: str) -> RunFolder:
    """The folder of `config`'s run, made if missing; roles may start in any order.

    An existing folder is resumed; changed settings are logged. A folder of another run is replaced
    if that has learned nothing and no process writes it.

    Args:
        role: of the caller, the only writer of that role's files.

    Raises:
        ConfigError: the run in the folder has another environment or policy, and has learned
            something or is being written.
        RunFolderError: the folder cannot be made, is no run folder, or another process writes this
            role's files.
    """
    lock = partial(lock_role, role=role, by_hand=PARENT_PID_VARIABLE not in os.environ)
    lock_alone = partial(lock_all, roles=WRITERS)
    path = Path(config.run.dir) / str(config.run.name)
    if not (path / "config.yaml").exists():
        try:
            return RunFolder.create(
                config.run.dir, str(config.run.name), config.to_yaml(), lock=lock
            )
        except RunFolderError:
            # of two roles that start at once, the other may be making it
            deadline = time.monotonic() + _FILLED_WITHIN_S
            while not (path / "config.yaml").exists():
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    try:
        return _open_same_run(config, path, lock)
    except ConfigError:
        with suppress(RunFolderError):  # it may not be replaced, or another role was faster
            RunFolder.create(
                config.run.dir, str(config.run.name), config.to_yaml(), lock=lock_alone
            ).close()
    return _open_same_run(config, path, lock)


def _open_same_run(config: Config, path: Path, lock: Callable[[Path], FolderLock]) -> RunFolder:
    folder = RunFolder.open(path, lock=lock)
    try:
        changed = check_same_run(config, folder)
    except BaseException:
        folder.close()
        raise
    if changed:
        _LOGGER.warning("event=config_differs folder=%s keys=%s", folder.path, ",".join(changed))
    return folder


def check_same_run(
    here: Config, folder: RunFolder, groups: Sequence[str] = _OF_THE_RUN
) -> list[str]:
    """The keys in which `here` differs from the configuration of the run in `folder`.

    Args:
        groups: of keys that must not differ.

    Raises:
        ConfigError: the run in the folder has another environment or policy.
        RunFolderError: its configuration cannot be read.
    """
    there = config_from_yaml(folder.read_config_yaml(), source=str(folder.config_path))
    found = differences(there, here)
    foreign = [each for each in found if _group_of(each[0]) in groups]
    if foreign:
        words = "; ".join(
            f"{key} is {theirs!r} there, {ours!r} here" for key, theirs, ours in foreign
        )
        raise ConfigError(
            f"the run folder {folder.path} is of another run: {words}. Start a new one under "
            "another run.name, or give these keys the values of that run"
        )
    return [key for key, _, _ in found]


def _group_of(dotted: str) -> str:
    """The group of a key; that of one policy's loss is the loss."""
    first, *rest = dotted.split(".")
    own = first == "policies" and len(rest) > 1 and rest[1] in _OF_LEARNING
    return rest[1] if own else first


def differences(there: Config, here: Config) -> list[tuple[str, Any, Any]]:
    """(dotted key, value there, value here) of every leaf that differs."""
    return [
        found
        for found in _different_leaves(there.model_dump(), here.model_dump())
        if found[0] not in _PLACES
        # settled on one side only; one of several policies need not have the key
        and not (is_automatic(found[0]) and (AUTO in found[1:] or None in found[1:]))
    ]


def _different_leaves(
    there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    found: list[tuple[str, Any, Any]] = []
    for key in sorted(there.keys() | here.keys()):
        theirs, ours = there.get(key), here.get(key)
        if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
            found += _different_leaves(theirs, ours, f"{prefix}{key}.")
        elif theirs != ours and canonical_yaml(theirs) != canonical_yaml(ours):  # NaN is not NaN
            found.append((f"{prefix}{key}", theirs, ours))
    return found


def checkpoint_at(path: Path) -> Checkpoint:
    """The checkpoint of a .json file, or the newest one of a run folder.

    Raises:
        CheckpointError: there is none, or it is damaged.
        RunFolderError: there is no such folder.
    """
    if path.suffix == ".json":
        return load_checkpoint(path)
    checkpoint = load_newest(RunFolder.open(path).checkpoints_dir)
    if checkpoint is None:
        raise CheckpointError(f"{path} has no checkpoint yet")
    return checkpoint
