"""A student for the small policies, and oracles for its training."""

from __future__ import annotations

import math

import numpy as np

from aclearn.policies import Convolution
from compress import PolicyGraph
from tests.support.architectures import altered


def smaller(architecture):
    """A student for the architecture."""
    if not architecture.convolves:
        return altered(architecture, hidden=(6,), separate_value=False)
    return altered(architecture, convolutions=(Convolution(4, 4, 2),), hidden=(12,), sections=())


def kl_by_loops(teacher_logits, logits):
    """Mean KL(teacher ‖ student), state by state, action by action."""
    total = 0.0
    for teacher_row, row in zip(teacher_logits.tolist(), logits.tolist(), strict=True):
        p = [math.exp(x - max(teacher_row)) for x in teacher_row]
        q = [math.exp(x - max(row)) for x in row]
        for a, b in zip(p, q, strict=True):
            total += a / sum(p) * math.log((a / sum(p)) / (b / sum(q)))
    return total / len(logits)


def distance(a, b):
    """Largest difference between two networks' weights, except the value's bias, which may jump."""
    return max(float(np.abs(a[name] - b[name]).max()) for name in a if name != "value.bias")


def pruned(policy, small, seed):
    """A stand-in for a previous link's result: the same observations, fewer filters and units."""
    architecture = altered(
        policy.graph.architecture, convolutions=(Convolution(3, 4, 2),), hidden=(7,)
    )
    return policy.become(PolicyGraph(architecture), small.tensors(architecture, seed))


def silenced(tensors):
    """The same weights with a first layer whose units are never active."""
    name = next(name for name in tensors if name.endswith(".bias"))
    return {**tensors, name: np.full_like(tensors[name], -1e3)}
