"""A member's configuration, and the weights that it begins a round with."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aclearn.config import Config, with_overrides
from aclearn.config.population import Mutable, mutable
from aclearn.errors import CheckpointError, RunFolderError
from aclearn.learning.account import StepAccount
from aclearn.population import Values
from aclearn.runs import (
    Checkpoint,
    RunFolder,
    list_checkpoints,
    load_checkpoint,
    load_newest,
    remove_checkpoint,
    save_checkpoint,
    write_atomically,
)
from services.trainer.gauges import TrainerCounters
from services.trainer.warm_start import inherited

_LOGGER = logging.getLogger(__name__)

_LARGEST_SEED: Final = 2**31
#: Keys that end a run, which a round ends instead.
_ENDS: Final = dict.fromkeys(("target_return", "max_updates", "max_wall_s"))
#: Key of a checkpoint's state: who has inherited in which round, so that it is done once.
_INHERITED: Final = "inherited"


def with_values(config: Config, values: Values) -> Config:
    """The configuration with these hyper-parameters, validated.

    Raises:
        ConfigError: it is not valid with them.
    """
    keys: dict[str, Any] = {}
    correctors = [each.model_dump() for each in config.correctors]
    for key, value in values.items():
        section, _, leaf = key.partition(".")
        found = mutable(config, key)
        assert isinstance(found, Mutable)  # the configuration was checked
        number = int(value) if found.whole else float(value)
        if section != "correctors":
            keys[key] = number
            continue
        name, _, argument = leaf.partition(".")
        entry: dict[str, Any] = next(each[name] for each in correctors if name in each)
        entry[argument] = number
        keys["correctors"] = correctors
    return with_overrides(config, keys) if keys else config


def member_config(config: Config, folder: Path, number: int, values: Values, until: int) -> Config:
    """The configuration of a member's run, which ends at `until` agent steps."""
    return with_values(config, values).with_run(
        dir=str(folder.parent),
        name=folder.name,
        seed=(config.run.seed + number) % _LARGEST_SEED,
        max_env_steps=until,
        **_ENDS,
    )


def write_member(folder: Path, config: Config) -> None:
    """Make a member's run folder, or give the existing one another configuration.

    Raises:
        RunFolderError: the disk fails.
    """
    try:
        folder.mkdir(exist_ok=True)
        (folder / "checkpoints").mkdir(exist_ok=True)
        write_atomically(folder / "config.yaml", config.to_yaml().encode())
    except OSError as error:
        raise RunFolderError(
            f"{folder} cannot be written ({error.strerror}); mend that, then continue with --resume"
        ) from error


def steps_in(folder: Path) -> int:
    """Agent steps of a member's newest checkpoint; 0 without one."""
    checkpoint = load_newest(folder / "checkpoints") if folder.is_dir() else None
    return 0 if checkpoint is None else int(checkpoint.state["account"]["env_steps"])


def set_aside_damaged(folder: Path, round_: int) -> None:
    """Move a member's checkpoints to `damaged-<round>/` if none of them can be read.

    It then begins as one that has never had a checkpoint: neither its trainer nor `load_newest`
    accepts a folder that has damaged ones only.
    """
    try:
        load_newest(folder / "checkpoints")
    except CheckpointError as error:
        aside = folder / f"damaged-{round_}"
        os.replace(folder / "checkpoints", aside)
        _LOGGER.warning("event=checkpoints_set_aside to=%s reason=%r", aside, str(error))


def inherit(child: Path, parent: Path, checkpoint: str, *, round_: int, keep: int) -> None:
    """Save the parent's policy as the child's newest checkpoint, once in a round.

    The child goes on with its own random numbers, environments, counters and account; see
    `inherited`. Its earlier checkpoint stays, since another member may inherit from it.

    Args:
        checkpoint: name of the parent's.
        keep: newest checkpoints of the child that stay.

    Raises:
        CheckpointError: a checkpoint cannot be read or written.
    """
    given = load_checkpoint(parent / "checkpoints" / f"{checkpoint}.json")
    own = load_newest(child / "checkpoints")
    mark = {"round": round_, "from": parent.name, "checkpoint": checkpoint}
    if own is not None and own.state.get(_INHERITED) == mark:
        return
    tensors, state = _begun(given) if own is None else (own.tensors, own.state)
    save_checkpoint(
        child / "checkpoints",
        tensors=inherited(tensors, given.tensors),
        state={**state, "judged": None, _INHERITED: mark},
        label=int(state["counters"]["updates"]),
        keep=max(2, keep),
    )


def _begun(parent: Checkpoint) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Tensors and state of a run that has no checkpoint, and so nothing of its own."""
    tensors = {name: each for name, each in parent.tensors.items() if name.startswith("random/")}
    counts = {
        "counters": dict(vars(TrainerCounters())),
        "account": StepAccount(policy=parent.state["policy"]).state(),
        "settings": {},
    }
    state = {name: part for name, part in parent.state.items() if name != "ledgers"}
    return tensors, state | counts


def keep_judged(kept: Path, member: Path, checkpoint: str) -> None:
    """Copy a member's judged checkpoint, which later saves of its run remove, to `kept`.

    Raises:
        RunFolderError: the disk fails.
    """
    if (kept / f"{checkpoint}.json").exists():
        return
    try:
        kept.mkdir(parents=True, exist_ok=True)
        for name in (f"{checkpoint}.safetensors", f"{checkpoint}.json"):
            write_atomically(kept / name, (member / "checkpoints" / name).read_bytes())
    except OSError as error:
        raise RunFolderError(
            f"the judged checkpoint {checkpoint} of {member} cannot be kept in {kept} "
            f"({error.strerror})"
        ) from error


def keep_only(kept: Path, checkpoint: str) -> None:
    """Remove the checkpoints of earlier judgements."""
    for path in list_checkpoints(kept):
        if path.stem != checkpoint:
            remove_checkpoint(path)


def keep_best(best: Path, member: Path, checkpoint: str, fitness: float) -> None:
    """Copy a member's policy and configuration into the run folder of the best agent.

    Raises:
        CheckpointError: the checkpoint cannot be read or written.
    """
    saved = load_checkpoint(member / "checkpoints" / f"{checkpoint}.json")
    best.mkdir(exist_ok=True)
    (best / "logs").mkdir(exist_ok=True)
    (best / "checkpoints").mkdir(exist_ok=True)
    text = RunFolder.open(member).read_config_yaml()
    write_atomically(best / "config.yaml", text.encode())
    save_checkpoint(
        best / "checkpoints",
        tensors=saved.tensors,
        state={**saved.state, "judged": {"by": "population", "return_mean": fitness}},
        label=saved.label,
        keep=1,
    )
