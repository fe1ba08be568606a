"""Policies whose layers are factored."""

from __future__ import annotations

import numpy as np

from aclearn.policies import Convolution, build_architecture
from aclearn.types import ObservationSpec
from compress import Policy

IMAGES = build_architecture(
    "images", ObservationSpec.plain((3, 8, 8), "uint8"), 3, (Convolution(8, 4, 2),), (20, 12)
)


def moved(tensors, by, seed):
    """The same weights after a small step of learning."""
    rng = np.random.default_rng(seed)
    return {
        name: (t + by * t.std() * rng.normal(size=t.shape)).astype(np.float32)
        for name, t in tensors.items()
    }


def truncated(weight, rank):
    """The best approximation of that rank: by eigenvectors of W Wᵀ in float64, not by an SVD."""
    matrix = weight.reshape(len(weight), -1).astype(np.float64)
    _, vectors = np.linalg.eigh(matrix @ matrix.T)
    top = vectors[:, -rank:]
    return (top @ (top.T @ matrix)).reshape(weight.shape)


def compress(link, architecture, tensors, context):
    policy = Policy.of(architecture, tensors)
    context.begin(policy)
    return link.compress(policy, context)


def product(policy, name):
    """up · down of a factored layer."""
    up, down = (
        policy.tensors[f"{name}.{half}.weight"].astype(np.float64) for half in ("up", "down")
    )
    return (up.reshape(len(up), -1) @ down.reshape(len(down), -1)).reshape(len(up), *down.shape[1:])
