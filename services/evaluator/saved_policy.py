"""The policies loaded from a run's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aclearn.config import Config, config_from_yaml
from aclearn.errors import ArgumentError, CheckpointError
from aclearn.extensions import search_modules_in
from aclearn.policies import Architecture
from aclearn.rollout import Executable
from aclearn.runs import NEWEST, Checkpoint, RunFolder, checkpoint_in, is_publication
from aclearn.types import DEFAULT_POLICY, EnvSpec, PolicyVersion
from compress import OnnxRuntime
from services.evaluator.chooser import Chooser


@dataclass(frozen=True, eq=False)
class SavedPolicy:
    """A policy of a run's checkpoint.

    Attributes:
        config: of the policy; see `Config.of_policy`.
    """

    config: Config
    spec: EnvSpec
    trained: Architecture
    weights: dict[str, NDArray[np.float32]]
    checkpoint: Checkpoint
    name: str = DEFAULT_POLICY

    @cached_property
    def architecture(self) -> Architecture:
        """The part of the network that acts."""
        return self.trained.acting()

    @property
    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """The weights of the part that acts."""
        return {name: self.weights[name] for name in self.architecture.tensor_shapes()}

    @property
    def at(self) -> PolicyVersion:
        """Generation and version of the weights."""
        state = self.checkpoint.state
        return PolicyVersion(int(state["generation"]), int(state["counters"]["policy_version"]))

    def executable(self) -> Executable:
        """The policy in ONNX Runtime; torch is not loaded."""
        return OnnxRuntime(self.architecture).load(self.tensors)

    def chooser(self, *, greedy: bool = False) -> Chooser:
        """Chooses actions from the policy's parameters."""
        return Chooser.of(self.config, self.architecture.action_spec, greedy=greedy)

    @property
    def updates(self) -> int:
        """Number of updates in the weights."""
        return int(self.checkpoint.state["counters"]["updates"])

    @property
    def env_steps(self) -> int:
        """Agent steps of the run until then."""
        return int(self.checkpoint.state["account"]["env_steps"])

    @property
    def machine(self) -> str:
        """The machine that trained it."""
        return str(self.checkpoint.state["machine"])

    @property
    def return_mean(self) -> float | None:
        """Mean return that made it the best, of training or of an evaluator; None for others."""
        judged = self.checkpoint.state["judged"]
        return None if judged is None else float(judged["return_mean"])


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A run's checkpoint with all its policies, by name."""

    config: Config
    checkpoint: Checkpoint
    policies: Mapping[str, SavedPolicy]

    def policy(self, name: str | None) -> SavedPolicy:
        """The policy of this name; None: the only one.

        Raises:
            ArgumentError: there is none, or it has no name and there are several.
        """
        if name is None and len(self.policies) == 1:
            return next(iter(self.policies.values()))
        if name is None or name not in self.policies:
            wanted = "several policies" if name is None else f"no policy {name!r}"
            raise ArgumentError(
                f"{self.checkpoint.path}: it has {wanted}; name one of {', '.join(self.policies)} "
                "(--policy, in Python policy=)"
            )
        return self.policies[name]


def load_run(path: Path, *, at: str | int = NEWEST) -> SavedRun:
    """The policies of a run folder; its environment is not needed.

    Args:
        at: which checkpoint; see `checkpoint_in`.

    Raises:
        AclearnError: the run or its checkpoint cannot be used.
    """
    folder = RunFolder.open(path)
    return run_of(folder, checkpoint_in(folder.checkpoints_dir, at))


def run_of(folder: RunFolder, checkpoint: Checkpoint) -> SavedRun:
    """The policies of one of a run's checkpoints.

    Raises:
        AclearnError: the run or its checkpoint cannot be used.
    """
    config: Config = config_from_yaml(folder.read_config_yaml(), source=str(folder.config_path))
    if not is_publication(folder.path):  # a stranger's may name any folder of this machine
        search_modules_in(config.run.pythonpath)
    policies = {
        name: _policy_in(config.of_policy(name), checkpoint.of_policy(name), name)
        for name in config.policy_names()
    }
    return SavedRun(config, checkpoint, policies)


def load_policy(path: Path, *, at: str | int = NEWEST, policy: str | None = None) -> SavedPolicy:
    """A policy of a run folder, as of `load_run`.

    Args:
        policy: its name; None: the only one.

    Raises:
        AclearnError: as of `load_run`; or there is no such policy.
    """
    return load_run(path, at=at).policy(policy)


def _policy_in(config: Config, checkpoint: Checkpoint, name: str) -> SavedPolicy:
    state = checkpoint.state
    try:
        architecture = Architecture.from_dict(state["architecture_spec"])
        spec = EnvSpec.of_policy(
            architecture.observation, architecture.action_spec, state["environment"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint.path}: it does not describe its policy: {error!r}"
        ) from error
    tensors = {
        name.removeprefix("weights/"): tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith("weights/")
    }
    return SavedPolicy(config, spec, architecture, tensors, checkpoint, name)
