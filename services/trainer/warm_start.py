"""`run.init_from`: the policy of another run, with which a new one begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclearn.config import Config, config_from_yaml
from aclearn.errors import AclearnError, ConfigError
from aclearn.policies import Architecture
from aclearn.runs import RunFolder
from services.start.folder import checkpoint_at, differences

_KEY: Final = "run.init_from"
#: Groups and keys of the configuration that decide about the architecture.
_OF_THE_POLICY: Final = ("env", "policy", "loss.kind", "loss.normalise_returns")
#: Totals of a learner: of the advantages the first two, of updates and learned steps the others.
_TOTALS: Final = "totals"
_MOMENTS: Final = "optimiser/"
#: Beginnings of the names of tensors in a checkpoint that belong to its policy.
_LEARNED: Final = ("weights/", "scalars/", "normaliser/", "target", _MOMENTS)
#: A first step size so many times the last one of the other run is worth a sentence.
_MUCH_LARGER: Final = 3.0


class WarmStart(NamedTuple):
    """What a run begins with.

    Attributes:
        tensors: under their names in a checkpoint.
        doubts: what may harm the policy, in sentences.
    """

    tensors: Mapping[str, NDArray[Any]] = MappingProxyType({})
    doubts: Sequence[str] = ()


def warm_start(config: Config, architecture: Architecture) -> WarmStart:
    """What `run.init_from` gives; nothing without that key.

    It is all that belongs to the policy: weights, learned scalars, statistics of the normalisers, a
    target network.
    The optimiser's moments come along where its kind is the same: without them every weight would
    move by the whole step size, however small its gradient. The size of the advantages does where
    the loss is the same. Counters do not, so that a schedule begins again.

    Raises:
        ConfigError: there is no such run or checkpoint, or it is of another architecture; names
            what differs.
    """
    if config.run.init_from is None:
        return WarmStart()
    path = Path(config.run.init_from)
    try:
        checkpoint = checkpoint_at(path)
    except AclearnError as error:
        raise ConfigError(f"{_KEY}: {error}") from error
    found, expected = checkpoint.state.get("architecture"), architecture.digest()
    if found != expected:
        raise ConfigError(
            f"{_KEY}: {checkpoint.path} is of another architecture than this run"
            f"{_different(checkpoint.path, config)}; give these keys the same values, or leave "
            f"{_KEY} out"
        )
    there, doubts = _config_of(checkpoint.path), []
    tensors = learned_tensors(checkpoint.tensors)
    if there is None or there.optimiser.kind != config.optimiser.kind:
        tensors = {n: t for n, t in tensors.items() if not n.startswith(_MOMENTS)}
        kind = "unknown" if there is None else there.optimiser.kind
        doubts.append(
            f"{_KEY}: the optimiser of {checkpoint.path.parents[1]} is {kind}, here it is "
            f"{config.optimiser.kind}, so that its moments begin again: the first updates move "
            "each weight by the whole step size; begin with a smaller optimiser.learning_rate"
        )
    same_loss = there is not None and there.loss.kind == config.loss.kind
    if same_loss and (kept := checkpoint.tensors.get(_TOTALS)) is not None:
        totals = kept.copy()
        totals[2:] = 0.0
        tensors[_TOTALS] = totals
    if there is not None:
        last = there.optimiser.rate_after(int(checkpoint.state["account"]["learned_steps"]))
        first = config.optimiser.learning_rate
        if first > _MUCH_LARGER * last:
            doubts.append(
                f"{_KEY}: {checkpoint.path.parents[1]} learned its last steps at a rate of "
                f"{last:.3g}, and this run begins with optimiser.learning_rate: {first:.3g}; such "
                "steps may destroy the policy, so set a smaller one to refine it"
            )
    return WarmStart(tensors, doubts)


def learned_tensors(tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Those of a checkpoint that make its policy and go on being learned, but for the totals."""
    return {name: tensor for name, tensor in tensors.items() if name.startswith(_LEARNED)}


def inherited(
    own: Mapping[str, NDArray[Any]], parent: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The tensors of a run that goes on with the policy of another one of the same algorithm.

    Weights, moments of the optimiser, normalisers and the size of the advantages are the other
    one's. Random numbers, the state of its environments and the counts stay its own.
    """
    kept = {name: tensor for name, tensor in own.items() if not name.startswith(_LEARNED)}
    if _TOTALS in kept and _TOTALS in parent:
        kept[_TOTALS] = np.concatenate([parent[_TOTALS][:2], kept[_TOTALS][2:]])
    return kept | learned_tensors(parent)


def _different(checkpoint: Path, config: Config) -> str:
    """The keys in which its run differs, with both values; or the digests' difference alone."""
    there = _config_of(checkpoint)
    if there is None:
        return " (other spaces or layers)"
    found = [
        f"{key} is {theirs!r} there, {ours!r} here"
        for key, theirs, ours in differences(there, config)
        if key in _OF_THE_POLICY or key.partition(".")[0] in _OF_THE_POLICY
    ]
    return f": {'; '.join(found)}" if found else " (the environment has other spaces)"


def _config_of(checkpoint: Path) -> Config | None:
    """The configuration of its run; None of a checkpoint without its run, or of another version."""
    try:
        folder = RunFolder.open(checkpoint.parents[1])
        return config_from_yaml(folder.read_config_yaml(), source=str(folder.config_path))
    except AclearnError:
        return None
