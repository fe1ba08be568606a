"""Random weights and observations of any architecture, and torch's output in float64."""

from __future__ import annotations

import numpy as np
import torch

from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import OBSERVATION
from compress.policy import random_observations


def some_tensors(architecture, seed):
    """Weights that keep activations near 1, with biases of that size."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(0, 0.5 if len(shape) == 1 else np.prod(shape[1:]) ** -0.5, shape).astype(
            np.float32
        )
        for name, shape in architecture.tensor_shapes().items()
    }


def some_observations(architecture, count, seed=0):
    """Random pixels, or normal numbers, of the leaf "observation", or of each leaf by name."""
    found = random_observations(architecture.observation, count, np.random.default_rng(seed))
    return found.get(OBSERVATION, found)


def reference_parameters(architecture, tensors, observations):
    """The torch network's output in float64, independent of kernels and memory layouts."""
    network = PolicyNetwork(architecture, seed=0)
    load_tensors(network, tensors)
    network = network.double()
    with torch.no_grad():
        return network(torch.from_numpy(observations))[0].numpy()
