"""log π_v(a) of a batch, by the weights that each step's version was published with."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aclearn.learning import ActingPolicies, PublishedWeights
from aclearn.policies.network import PolicyNetwork
from aclearn.types import PolicyVersion
from tests.support.sequences import recurrent

T, B = 6, 5
#: Of each environment's steps; 7 is a version that is not kept.
VERSIONS = np.array([[1] * 6, [2] * 6, [1, 1, 1, 2, 2, 2], [1, 2, 2, 2, 7, 7], [7] * 6]).T


def published_with(architecture, seeds, *, kept: int):
    """Weights of the seeds, published as versions 1, 2, …, and the networks that have them."""
    published, networks = PublishedWeights(kept=kept), {}
    names = architecture.acting().tensor_shapes()
    for version, seed in enumerate(seeds, start=1):
        network = networks[version] = PolicyNetwork(architecture, seed=seed)
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(0.3 * torch.randn(weight.shape, generator=_GENERATOR))
        weights = dict(network.named_parameters())
        published.publish(PolicyVersion(3, version), {name: weights[name] for name in names})
    return published, networks


_GENERATOR = torch.Generator().manual_seed(0)


def slowly(batch, networks) -> torch.Tensor:
    """Each environment's steps one by one, by the network of each step's version."""
    expected = torch.full((T, B), math.nan)
    starts = batch.starts
    for version, network in networks.items():
        for b in range(B):
            state = tuple(part[b : b + 1] for part in batch.state)
            for t in range(T):
                if starts[t, b]:
                    state = tuple(torch.zeros_like(part) for part in state)
                leaves = {name: leaf[t, b : b + 1] for name, leaf in batch.observations.items()}
                with torch.no_grad():
                    output = network.step(leaves, state)
                state = output.state
                if batch.versions[t, b] == version:
                    log_probs = output.parameters[0].log_softmax(0)
                    expected[t, b] = log_probs[batch.actions[t, b]]
    return expected


@pytest.mark.parametrize("kind", ["flat", "images", "lstm"])
def test_each_step_is_judged_by_the_weights_of_the_version_that_acted(make, kind) -> None:
    architecture = recurrent("lstm") if kind == "lstm" else getattr(make, kind)
    batch = make.batch(architecture, T, B, seed=2)
    state = tuple(torch.randn(B, size, generator=_GENERATOR) for size in architecture.state)
    batch = make.replace(batch, versions=VERSIONS, state=state)
    published, networks = published_with(architecture, [1, 2], kept=2)
    acting = ActingPolicies(architecture, published, device=make.cpu)

    found = acting.log_probs(batch)

    expected = slowly(batch, networks)
    unknown = torch.from_numpy(VERSIONS == 7)
    assert torch.equal(found.isnan(), unknown) and torch.equal(expected.isnan(), unknown)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_only_the_newest_versions_of_this_generation_are_kept() -> None:
    published = PublishedWeights(kept=2)
    for at in ((0, 3), (0, 4), (0, 5)):
        published.publish(PolicyVersion(*at), {"a": torch.full((2, 3), float(at[1]))})
    assert published.of(3) is None and published.of(6) is None
    assert [published.of(version).at.version for version in (4, 5)] == [4, 5]
    weights = published.of(4).on_device
    assert weights["a"].shape == (2, 3) and bool((weights["a"] == 4).all())
    published.publish(PolicyVersion(1, 4), {"a": torch.zeros(2, 3)})
    assert published.of(5) is None  # of another generation
    assert float(published.of(4).on_device["a"].sum()) == 0.0
