"""Policies small enough for slow oracles and whole trainings in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from aclearn.policies import Architecture, Convolution, ResidualSection, build_architecture
from aclearn.types import ObservationSpec, PolicyVersion
from compress import Policy
from tests.support.checked_swaps import swaps_checked

_IMAGES = build_architecture(
    "small-images",
    ObservationSpec.plain((2, 12, 12), "uint8"),
    3,
    (Convolution(5, 4, 2), Convolution(6, 3, 1)),
    (16, 8),
)
_FLAT = build_architecture(
    "small-flat",
    ObservationSpec.plain((5,), "float32"),
    4,
    (),
    (12, 10),
    activation="tanh",
    separate_value=True,
)
# blocks as wide as their section, wider and narrower; an odd size
_RESIDUAL = build_architecture(
    "small-residual",
    ObservationSpec.plain((2, 13, 12), "uint8"),
    3,
    (),
    (16, 8),
    sections=(ResidualSection(6, (6, 8)), ResidualSection(5, (4,))),
)


def _spread(shape):
    return 0.3 if len(shape) == 1 else (2 / np.prod(shape[1:])) ** 0.5


def _tensors(architecture, seed):
    """Weights that keep activations near 1, with biases of that size."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(0, _spread(shape), shape).astype(np.float32)
        for name, shape in architecture.tensor_shapes().items()
    }


def _observations(architecture, count, seed=0):
    """Images of 4 × 4 blocks, which differ more than noise, or normal numbers."""
    rng = np.random.default_rng(seed)
    shape = architecture.observation["observation"].shape
    if architecture.observation["observation"].dtype != "uint8":
        return rng.normal(size=(count, *shape)).astype(np.float32)
    channels, height, width = shape
    coarse = rng.integers(0, 256, (count, channels, -(-height // 4), -(-width // 4)), np.uint8)
    blocks = coarse.repeat(4, axis=2).repeat(4, axis=3)
    return np.ascontiguousarray(blocks[:, :, :height, :width])


def _policy(architecture, seed=1, version=1):
    return Policy.of(architecture, _tensors(architecture, seed), PolicyVersion(0, version))


@pytest.fixture(autouse=True)
def every_swap_is_checked() -> Iterator[None]:
    """After every swap the outputs are torch's for the new weights."""
    with swaps_checked():
        yield


@pytest.fixture(scope="session")
def small() -> SimpleNamespace:
    """Three architectures, and functions that make weights, observations and policies for any."""
    return SimpleNamespace(
        images=_IMAGES,
        flat=_FLAT,
        residual=_RESIDUAL,
        tensors=_tensors,
        observations=_observations,
        policy=_policy,
    )


@pytest.fixture(params=["images", "flat", "residual"])
def architecture(request, small) -> Architecture:
    """Each of the small architectures."""
    return getattr(small, request.param)
