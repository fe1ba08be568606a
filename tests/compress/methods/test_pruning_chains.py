"""Pruned policies in chains with other links, and the actors that run them."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.types import PolicyVersion
from compress import (
    ArtifactRuntime,
    Context,
    Fusion,
    Policy,
    Pruning,
    parse_chain,
)
from tests.support.acting import Acting
from tests.support.architectures import altered, parts_of
from tests.support.contexts import context_of
from tests.support.pruning_oracle import (
    FLAT,
    IMAGES,
    assert_tensors_close,
)
from tests.support.random_policies import compress, some_observations, some_tensors


def test_the_order_of_fuse_and_prune_makes_no_difference() -> None:
    tensors, visited = some_tensors(IMAGES, 17), some_observations(IMAGES, 20)
    # against weights divided by 255 the biases would dominate, and vice versa
    sizes = np.arange(6.0, 0.0, -1.0)
    tensors["convolutions.0.weight"] *= sizes[:, None, None, None].astype(np.float32)
    tensors["convolutions.0.bias"][:] = 0.1 / sizes
    results = []
    for links in ([Pruning(0.5), Fusion()], [Fusion(), Pruning(0.5)]):
        policy, context = Policy.of(IMAGES, tensors), context_of(visited)
        context.begin(policy)
        for link in links:
            policy = link.compress(policy, context)
        results.append(policy)
    assert results[0].graph == results[1].graph
    assert_tensors_close(results[1].tensors, results[0].tensors, rtol=1e-4, atol=1e-6)


def lopsided(architecture, small):
    """Random weights; the first `small[i]` units of the hidden layer i are a thousandth of that."""
    tensors = some_tensors(architecture, 20)
    for i, count in enumerate(small):
        tensors[f"hidden.{i}.weight"][:count] *= np.float32(0.001)
        tensors[f"hidden.{i}.bias"][:count] *= np.float32(0.001)
    return tensors


@pytest.mark.parametrize(
    "links",
    [
        ["onnx"],
        [{"prune": {"sparsity": 0.25, "round_to": 1}}, "fuse", "torchscript"],
        [{"distill": {"steps": 2, "first_steps": 2}}, "int8", "onnx"],
        [{"low_rank": 0.9}, "int8", "onnx"],
        [{"low_rank": 3}, "onnx"],  # of 2 × 8 and 14 × 2 it saves nothing: they stay whole
    ],
    ids=str,
)
def test_the_links_behind_a_global_ranking_go_on_when_widths_change(links) -> None:
    architecture = altered(FLAT, observation_shape=(8,), hidden=(16, 16), separate_value=False)
    prune = {"sparsity": 0.5, "scope": "global", "round_to": 1, "reselect_every": 2}
    chain = parse_chain([{"prune": prune}, *links])
    chain.plan(architecture)
    context = context_of(some_observations(architecture, 64))
    actor, graphs = Acting(ArtifactRuntime(architecture)), []
    first, later = lopsided(architecture, (2, 14)), lopsided(architecture, (14, 2))
    for version, tensors in enumerate([first, later, later, later]):
        policy = Policy.of(architecture, tensors, PolicyVersion(0, version))
        artifact = chain.compress(policy, context)
        actor.load(artifact)  # which is compared with torch: see conftest.py
        graphs.append(artifact.graph)
    assert graphs[0] == graphs[1] and graphs[2] == graphs[3]
    # a quarter of 14 is 3, of 2 none
    widths = (11, 2) if "prune" in str(links) else (14, 2)
    assert parts_of(graphs[1].architecture).hidden == widths
    assert parts_of(graphs[2].architecture).hidden == widths[::-1]
    if links[0] == {"low_rank": 3}:
        assert (graphs[1].ranks, graphs[2].ranks) == ((("hidden.0", 3),), ())


@pytest.mark.parametrize(
    ("width", "small", "widths"),
    [
        # the widths are rounded to a multiple of 8: 32 and 32; 35 and 29 as 40 and 32; 42 and 22 as
        # 48, 24
        (64, [(32, 32), (29, 35), (22, 42)], [(32, 32), (32, 32), (48, 24)]),
        # of 4 where of 8 would be all: 9 and 7 as 12 and 8; of 2: 14 and 2 as 14 and 8; 11 and 5
        # as 12 and 8, which is 14 but for rounding; 8 and 8 is not
        (
            16,
            [(8, 8), (7, 9), (2, 14), (5, 11), (8, 8)],
            [(8, 8), (8, 8), (14, 8), (14, 8), (8, 8)],
        ),
        # 1 and 7 as 4 and 7; 6 and 2 as 6 and 4; 4 and 4; 7 and 1 as 7 and 4
        (8, [(7, 1), (2, 6), (4, 4), (1, 7)], [(4, 7), (6, 4), (6, 4), (6, 4)]),
    ],
)
def test_widths_that_only_rounding_would_change_stay(width, small, widths) -> None:
    architecture = altered(
        FLAT, observation_shape=(8,), hidden=(width, width), separate_value=False
    )
    link, context = Pruning(0.5, scope="global", round_to=8, reselect_every=1), Context()
    results = [
        compress(link, architecture, lopsided(architecture, counts), context) for counts in small
    ]
    assert [parts_of(result.graph.architecture).hidden for result in results] == widths
