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
from aclearn.runs import Checkpoint, RunFolder
from aclearn.runs.checkpoint import prefix_of
from aclearn.types import DEFAULT_POLICY
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


def warm_start(config: Config, architectures: Mapping[str, Architecture]) -> WarmStart:
    """What a new run begins with, by `run.init_from` and `policies.NAME.init_from`.

    Args:
        architectures: policy → its architecture.

    Raises:
        ConfigError: there is no such run, checkpoint or policy in it, or it is of another
            architecture; names what differs.
    """
    if not config.policies:
        [architecture] = architectures.values()
        return warm_start_of(config, architecture)
    tensors: dict[str, NDArray[Any]] = {}
    doubts: list[str] = []
    for name, architecture in architectures.items():
        key = _KEY if config.policies[name].init_from is None else f"policies.{name}.init_from"
        part = warm_start_of(config.of_policy(name), architecture, key=key, policy=name)
        tensors |= {f"{prefix_of(name)}{each}": array for each, array in part.tensors.items()}
        doubts += part.doubts
    return WarmStart(tensors, doubts)


def warm_start_of(
    config: Config, architecture: Architecture, *, key: str = _KEY, policy: str = DEFAULT_POLICY
) -> WarmStart:
    """What `run.init_from` gives to one policy; nothing without that key.

    It is all that belongs to the policy: weights, learned scalars, statistics of the normalisers, a
    target network.
    The optimiser's moments come along where its kind is the same: without them every weight would
    move by the whole step size, however small its gradient. The size of the advantages does where
    the loss is the same. Counters do not, so that a schedule begins again.

    Args:
        config: of the policy.
        key: its name in messages.
        policy: the one that is taken from a run with several; a run with one gives that.
    """
    if config.run.init_from is None:
        return WarmStart()
    path = Path(config.run.init_from)
    try:
        whole = checkpoint_at(path)
        several = whole.policies != (DEFAULT_POLICY,)
        checkpoint = whole.of_policy(policy) if several else whole
    except AclearnError as error:
        raise ConfigError(f"{key}: {error}") from error
    found, expected = checkpoint.state.get("architecture"), architecture.digest()
    if found != expected:
        raise ConfigError(
            f"{key}: {checkpoint.path} is of another architecture than this run"
            f"{_different(checkpoint, config, architecture, policy)}; give these keys the same "
            f"values, or leave {key} out"
        )
    there, doubts = _config_of(checkpoint.path, policy), []
    tensors = learned_tensors(checkpoint.tensors)
    if there is None or there.optimiser.kind != config.optimiser.kind:
        tensors = {n: t for n, t in tensors.items() if not n.startswith(_MOMENTS)}
        kind = "unknown" if there is None else there.optimiser.kind
        doubts.append(
            f"{key}: the optimiser of {checkpoint.path.parents[1]} is {kind}, here it is "
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
                f"{key}: {checkpoint.path.parents[1]} learned its last steps at a rate of "
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


def _different(
    checkpoint: Checkpoint, config: Config, architecture: Architecture, policy: str
) -> str:
    """The spaces, or else the keys in which its run differs, both as there and here."""
    try:
        there = Architecture.from_dict(checkpoint.state["architecture_spec"])
    except (KeyError, TypeError, ValueError):
        return " (other spaces or layers)"
    theirs, ours = (f"{each.observation} → {each.action_spec}" for each in (there, architecture))
    if theirs != ours:
        return f": it plays {theirs}, and these agents have {ours}"
    configured = _config_of(checkpoint.path, policy)
    if configured is None:
        return " (other layers)"
    found = [
        f"{key} is {theirs!r} there, {ours!r} here"
        for key, theirs, ours in differences(configured, config)
        if key in _OF_THE_POLICY or key.partition(".")[0] in _OF_THE_POLICY
    ]
    return f": {'; '.join(found)}" if found else " (other layers)"


def _config_of(checkpoint: Path, policy: str) -> Config | None:
    """The configuration of its run; None of a checkpoint without its run, or of another version."""
    try:
        folder = RunFolder.open(checkpoint.parents[1])
        config = config_from_yaml(folder.read_config_yaml(), source=str(folder.config_path))
        return config.of_policy(policy) if config.policies else config
    except AclearnError:
        return None
