"""Random weights and observations of any architecture, and what links and torch make of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import OBSERVATION
from compress import Context, Policy
from compress.graphs.graph_network import GraphNetwork
from compress.policy import random_observations
from compress.runtimes.graph_cache import GraphCache


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


def apply(link, policy, context):
    """The link's result for this policy as the next version."""
    context.begin(policy)
    return link.compress(policy, context)


def compress(link, architecture, tensors, context=None):
    """The link's result for these weights as the next version, or as the first of a new context."""
    return apply(link, Policy.of(architecture, tensors), context or Context())


def reference(architecture, tensors, observations):
    """The torch network's parameters and values in float64, without kernels of another layout."""
    network = PolicyNetwork(architecture, seed=0)
    load_tensors(network, tensors)
    with torch.no_grad():
        parameters, values = network.double()(torch.from_numpy(observations))
    return parameters.numpy(), values.numpy()


def reference_parameters(architecture, tensors, observations):
    return reference(architecture, tensors, observations)[0]


def graph_outputs(policy, observations):
    """Parameters and values of a compressed policy's graph in torch."""
    with torch.inference_mode():
        outputs = GraphNetwork(policy.graph).load(policy.tensors)(torch.from_numpy(observations))
    return tuple(output.numpy() for output in outputs)


def in_onnx(policy):
    """A quantised policy in ONNX Runtime, as in an actor."""
    graph = replace(policy.graph, runtime="onnx", static=True)
    return GraphCache().executable(graph, policy.tensors)
