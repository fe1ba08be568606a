"""`run.init_from`: the weights of another run, with which a new one begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from aclearn.config import Config, config_from_yaml
from aclearn.errors import AclearnError, CheckpointError, ConfigError
from aclearn.policies import Architecture
from aclearn.runs import Checkpoint, RunFolder, load_checkpoint, load_newest
from services.runtime.role_folder import differences

_KEY: Final = "run.init_from"
#: Groups and keys of the configuration that decide about the architecture.
_OF_THE_POLICY: Final = ("env", "policy", "loss.kind", "loss.normalise_returns")


def start_tensors(config: Config, architecture: Architecture) -> dict[str, NDArray[Any]]:
    """The tensors of `run.init_from`, under their names in a checkpoint; {} without that key.

    They are the weights and the statistics of the normalisers: neither optimiser nor counters.

    Raises:
        ConfigError: there is no such run or checkpoint, or it is of another architecture; names
            what differs.
    """
    if config.run.init_from is None:
        return {}
    path = Path(config.run.init_from)
    try:
        checkpoint = _read(path)
    except AclearnError as error:
        raise ConfigError(f"{_KEY}: {error}") from error
    found, expected = checkpoint.state.get("architecture"), architecture.digest()
    if found != expected:
        raise ConfigError(
            f"{_KEY}: {checkpoint.path} is of another architecture than this run"
            f"{_different(checkpoint.path, config)}; give these keys the same values, or leave "
            f"{_KEY} out"
        )
    taken = ("weights/", "normaliser/")
    tensors = {n: t for n, t in checkpoint.tensors.items() if n.startswith(taken)}
    tensors.pop("normaliser/advantages", None)  # of another loss
    return tensors


def _read(path: Path) -> Checkpoint:
    if path.suffix == ".json":
        return load_checkpoint(path)
    checkpoint = load_newest(RunFolder.open(path).checkpoints_dir)
    if checkpoint is None:
        raise CheckpointError(f"{path} has no checkpoint yet")
    return checkpoint


def _different(checkpoint: Path, config: Config) -> str:
    """The keys in which its run differs, with both values; or the digests' difference alone."""
    try:
        folder = RunFolder.open(checkpoint.parents[1])
        there = config_from_yaml(folder.read_config_yaml(), source=str(folder.config_path))
    except AclearnError:  # a checkpoint without its run, or of another version
        return " (other spaces or layers)"
    found = [
        f"{key} is {theirs!r} there, {ours!r} here"
        for key, theirs, ours in differences(there, config)
        if key in _OF_THE_POLICY or key.partition(".")[0] in _OF_THE_POLICY
    ]
    return f": {'; '.join(found)}" if found else " (the environment has other spaces)"
