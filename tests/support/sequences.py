"""Policies with a memory, sequences that they see, and a slow walk along one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from aclearn.policies import Architecture, describe_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import Memory, ObservationSpec, PolicyVersion, Visited
from compress import Policy
from compress.policy import random_observations

_SPACES = {
    "mlp": ObservationSpec.plain((3,), "float32"),
    "small-cnn": ObservationSpec.plain((3, 10, 10), "uint8"),
}


def recurrent(
    kind: str, *, preset: str = "mlp", size: int = 8, layers: int = 1, **settings: Any
) -> Architecture:
    """A preset with a memory, for 4 actions."""
    memory = Memory(kind, size, layers)
    space = _SPACES[preset]
    return describe_architecture(preset, observation=space, actions=4, memory=memory, **settings)


def remembering(architecture: Architecture, seed: int = 1, version: int = 1) -> Policy:
    """A policy whose answers depend much on what was before."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in architecture.tensor_shapes().items():
        spread = 0.3 if len(shape) == 1 else 1.5 * np.prod(shape[1:]) ** -0.5
        tensors[name] = rng.normal(0, spread, shape).astype(np.float32)
    return Policy.of(architecture, tensors, PolicyVersion(0, version))


def sequences(
    architecture: Architecture, count: int = 6, length: int = 12, seed: int = 0, **parts: Any
) -> Visited:
    """Random sequences, some of which begin an episode within; their states are unknown."""
    rng = np.random.default_rng(seed)
    observations = random_observations(architecture.observation, count * length, rng)
    return Visited(observations, length=length, valid=rng.random(count * length) < 0.9, **parts)


def walked(step: Any, visited: Visited, state: Any = ()) -> np.ndarray:
    """Parameters `[M, P]` of the valid rows, each sequence alone and step by step.

    `step(leaves, state) → (parameters, state)` of one row; `()` is the state of zeros.
    """
    found = []
    for k in range(visited.sequences):
        now = tuple(part[k : k + 1] for part in state)
        for t in range(visited.length):
            row = k * visited.length + t
            leaves = {name: leaf[row : row + 1] for name, leaf in visited.observations.items()}
            parameters, now = step(leaves, now)
            if visited.valid is None or visited.valid[row]:
                found.append(parameters[0])
            else:
                now = ()
    return np.array(found)


def step_of(executable: Any) -> Any:
    """An executable's step for `walked`."""

    def step(leaves: Any, state: Any) -> Any:
        output = executable.step(leaves, state)
        return output.parameters, output.state

    return step


def torch_step(policy: Policy) -> Any:
    """The uncompressed policy's step in the trainer's module, for `walked`."""
    network = PolicyNetwork(policy.graph.architecture)
    load_tensors(network, dict(policy.tensors))

    def step(leaves: Any, state: Any) -> Any:
        given = {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}
        with torch.no_grad():
            output = network.step(given, tuple(torch.as_tensor(part) for part in state))
        return output.parameters.numpy(), output.state

    return step
