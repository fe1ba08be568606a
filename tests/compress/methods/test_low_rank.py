"""Factored layers: their error, their ranks, what is refused, and bases that follow the weights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from aclearn.policies import Convolution, ResidualSection, build_architecture
from aclearn.types import ObservationSpec, PolicyVersion
from compress import ChainError, Context, LowRank, Policy
from compress.graphs.policy_graph import PolicyGraph
from compress.methods.low_rank import (
    best_basis,
    largest_paying_rank,
    orthogonal_factor,
    rank_of_share,
    turned_towards,
)
from tests.support.architectures import altered
from tests.support.random_policies import (
    compress,
    graph_outputs,
    reference,
    some_observations,
    some_tensors,
)

IMAGES = build_architecture(
    "images", ObservationSpec.plain((3, 8, 8), "uint8"), 3, (Convolution(8, 4, 2),), (20, 12)
)
RESIDUAL = altered(IMAGES, convolutions=(), sections=(ResidualSection(8, (6,)),), hidden=(20,))
FLAT = build_architecture(
    "flat", ObservationSpec.plain((6,), "float32"), 3, (), (16, 14), "tanh", separate_value=True
)


def with_hidden(weight, seed=5):
    """IMAGES' weights with these of the first hidden layer."""
    return {**some_tensors(IMAGES, seed), "hidden.0.weight": np.asarray(weight, np.float32)}


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


def product(policy, name="hidden.0"):
    """up · down of a factored layer."""
    up, down = (
        policy.tensors[f"{name}.{half}.weight"].astype(np.float64) for half in ("up", "down")
    )
    return (up.reshape(len(up), -1) @ down.reshape(len(down), -1)).reshape(len(up), *down.shape[1:])


def assert_acts_as(policy, architecture, tensors):
    observations = some_observations(architecture, 6)
    expected = reference(architecture, tensors, observations)
    for answer, wanted in zip(graph_outputs(policy, observations), expected, strict=True):
        np.testing.assert_allclose(answer, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "link", "ranks"),
    [
        (IMAGES, LowRank(3, convolutions=True), ["convolutions.0", "hidden.0", "hidden.1"]),
        (
            RESIDUAL,
            LowRank(3, convolutions=True),
            [
                "hidden.0",
                "sections.0.blocks.0.first",
                "sections.0.blocks.0.second",
                "sections.0.convolution",
            ],
        ),
        (IMAGES, LowRank(8), ["hidden.0"]),  # 8 · (12 + 20) would be more than 12 · 20
        (IMAGES, LowRank(1, layers=["policy"]), ["policy"]),
        (FLAT, LowRank(4), ["hidden.0", "hidden.1"]),
    ],
)
def test_a_factored_policy_is_the_one_with_the_best_approximations(
    architecture, link, ranks
) -> None:
    tensors = some_tensors(architecture, 1)
    result = compress(link, architecture, tensors)
    assert dict(result.graph.ranks) == dict.fromkeys(ranks, link.settings.rank)
    assert result.graph == link.plan(PolicyGraph(architecture))
    approximated = dict(tensors)
    for name, rank in result.graph.ranks:
        weight = f"{name}.weight"
        approximated[weight] = truncated(tensors[weight], rank).astype(np.float32)
    assert_acts_as(result, architecture, approximated)
    with pytest.raises(AssertionError):
        assert_acts_as(result, architecture, tensors)


def test_a_layer_that_has_a_small_rank_loses_nothing() -> None:
    rng = np.random.default_rng(3)
    tensors = with_hidden(rng.normal(size=(20, 2)) @ rng.normal(size=(2, 72)) / 10)
    context = Context()
    for link in (LowRank(2, layers=["hidden.0"]), LowRank(0.9999, layers=["hidden.0"])):
        result = compress(link, IMAGES, tensors, context)
        assert result.graph.ranks == (("hidden.0", 2),)
        assert_acts_as(result, IMAGES, tensors)


@pytest.mark.parametrize(
    ("values", "share", "rank"),
    [
        ([2.0, 1.0, 1.0, 0.0], 0.6, 1),  # squares 4, 1, 1: 4 of 6 is 0.667
        ([2.0, 1.0, 1.0, 0.0], 0.67, 2),
        ([2.0, 1.0, 1.0, 0.0], 0.84, 3),
        ([2.0, 1.0, 1.0, 0.0], 0.999, 3),
        ([1.0, 1.0, 1.0, 1.0], 0.5, 2),
        ([1.0, 1.0, 1.0, 1.0], 0.51, 3),
        ([0.0, 0.0], 0.5, 1),
    ],
)
def test_a_share_is_of_the_squared_singular_values(values, share, rank) -> None:
    assert rank_of_share(np.array(values), share) == rank


@pytest.mark.parametrize("shape", [(512, 3136), (32, 324), (64, 4), (2, 3), (2, 2), (1, 50)])
def test_the_largest_rank_that_pays_is_the_last_with_fewer_multiplications(shape) -> None:
    rows, columns = shape
    most = largest_paying_rank(shape)
    assert most == 0 or most * (rows + columns) < rows * columns
    assert (most + 1) * (rows + columns) >= rows * columns
    most = largest_paying_rank((rows, columns, 3, 3))
    assert (most + 1) * (rows + 9 * columns) >= rows * 9 * columns


def graded(seed, decay):
    """IMAGES' weights with singular values decay⁰, decay¹, … in the hidden layers."""
    tensors = some_tensors(IMAGES, seed)
    for name in ("hidden.0.weight", "hidden.1.weight"):
        left, values, right = np.linalg.svd(tensors[name], full_matrices=False)
        tensors[name] = (left * decay ** np.arange(len(values)) @ right).astype(np.float32)
    return tensors


def test_ranks_of_a_share_are_decided_once_and_again_when_due() -> None:
    # squares fall by 4: 1 − 4⁻ʳ ≥ 0.9 first for r = 2; by 100: 0.99 at once
    link, context = LowRank(0.9, decide_every=3), Context()
    steep, flat = graded(9, 0.1), graded(9, 0.5)
    ranks = [
        dict(compress(link, IMAGES, t, context).graph.ranks) for t in (flat, steep, steep, steep)
    ]
    two, one = {"hidden.0": 2, "hidden.1": 2}, {"hidden.0": 1, "hidden.1": 1}
    assert ranks == [two, two, two, one]
    link, context = LowRank(0.9, decide_every=None), Context()
    ranks = {compress(link, IMAGES, t, context).graph.ranks for t in [flat] + 5 * [steep]}
    assert ranks == {tuple(two.items())}
    # a configured rank does not depend on the weights
    link, context = LowRank(3, decide_every=1), Context()
    assert {compress(link, IMAGES, t, context).graph.ranks for t in (flat, steep)} == {
        (("hidden.0", 3), ("hidden.1", 3))
    }


def test_an_untrained_layer_stays_whole_until_it_has_a_small_rank() -> None:
    link, context = LowRank(0.9, decide_every=2), Context()
    untrained = graded(10, 1.0)  # orthogonal rows, as weights start
    first = compress(link, IMAGES, untrained, context)
    assert first.graph == PolicyGraph(IMAGES)
    for name, tensor in untrained.items():
        np.testing.assert_array_equal(first.tensors[name], tensor)
    compress(link, IMAGES, graded(10, 0.5), context)
    third = compress(link, IMAGES, graded(10, 0.5), context)
    assert dict(third.graph.ranks) == {"hidden.0": 2, "hidden.1": 2}


def test_another_graph_is_decomposed_afresh() -> None:
    link, context = LowRank(3), Context()
    compress(link, IMAGES, some_tensors(IMAGES, 11), context)
    wider = altered(IMAGES, hidden=(24, 12))
    tensors = some_tensors(wider, 12)
    result = compress(link, wider, tensors, context)
    best = truncated(tensors["hidden.0.weight"], 3)
    np.testing.assert_allclose(product(result), best, atol=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e-20, 1e18, 1e36])
@pytest.mark.parametrize("link", [LowRank(2), LowRank(0.9)], ids=lambda link: link.id)
def test_dead_and_extreme_weights_stay_finite(link, scale) -> None:
    context, rng = Context(), np.random.default_rng(13)
    for version in range(3):
        weight = np.outer(rng.normal(size=20), rng.normal(size=72)) * scale
        result = compress(link, IMAGES, with_hidden(weight, version), context)
        assert all(np.isfinite(tensor).all() for tensor in result.tensors.values())
        tolerance = 1e-5 * float(np.abs(weight).max()) + 1e-44
        np.testing.assert_allclose(product(result), weight, rtol=1e-4, atol=tolerance)


def test_weights_that_jump_wake_or_are_all_equal_are_decomposed_afresh() -> None:
    link, context, breaks = LowRank(3), Context(), []
    first, second = np.zeros((2, 20, 72))
    first[4:7, :3] = np.diag([3.0, 2.0, 1.0])
    second[10:13, 40:43] = np.diag([1.0, 5.0, 1.0])  # of which the first knows nothing
    for weight in (first, second, first, np.zeros((20, 72)), second):
        result = compress(link, IMAGES, with_hidden(weight), context)
        np.testing.assert_allclose(product(result), weight, atol=1e-6)
        breaks.append(context.breaks)
    assert breaks == [0, 1, 2, 2, 3]  # later links measure again; not of a layer that is dead
    tensors = {n: np.full(s, 0.5, np.float32) for n, s in IMAGES.tensor_shapes().items()}
    result = compress(LowRank(0.99), IMAGES, tensors)
    assert dict(result.graph.ranks) == {"hidden.0": 1, "hidden.1": 1}
    np.testing.assert_allclose(product(result), np.full((20, 72), 0.5), rtol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "link", "message"),
    [
        (IMAGES, LowRank(16), "hidden.0 up to 15, hidden.1 up to 7"),
        (IMAGES, LowRank(8, layers=["hidden.0", "hidden.1"]), r"no less .*: hidden.1 up to 7"),
        (IMAGES, LowRank(2, layers=["hidden.2"]), "'hidden.2' is unknown; expected"),
        (FLAT, LowRank(2, layers=["value_hidden.0"]), "'value_hidden.0' is unknown"),
        (altered(IMAGES, hidden=()), LowRank(2), "no hidden dense layer to factor"),
        (altered(FLAT, hidden=(1,)), LowRank(0.5), "hidden.0 up to 0"),
    ],
)
def test_graphs_that_cannot_be_factored_are_refused(architecture, link, message) -> None:
    with pytest.raises(ChainError, match=message):
        link.plan(PolicyGraph(architecture))
    with pytest.raises(
        ChainError, match=r"hidden\.0 is factored already; a chain has one low_rank"
    ):
        link.plan(PolicyGraph(architecture, ranks=(("hidden.0", 1),)))


def test_later_versions_are_as_good_as_an_svd() -> None:
    tensors = some_tensors(IMAGES, 4)
    left, values, right = np.linalg.svd(tensors["hidden.0.weight"], full_matrices=False)
    decaying = left * (values * 0.7 ** np.arange(20)) @ right
    tensors["hidden.0.weight"] = decaying.astype(np.float32)
    link, context = LowRank(5), Context()
    for version in range(12):
        tensors = moved(tensors, 0.05, version)
        weight = tensors["hidden.0.weight"]
        result = compress(link, IMAGES, tensors, context)
        best, error = (
            np.linalg.norm(near - weight) / np.linalg.norm(weight)
            for near in (truncated(weight, 5), product(result))
        )
        assert best - 1e-6 <= error < 1.02 * best
        np.testing.assert_array_equal(result.tensors["hidden.0.up.bias"], tensors["hidden.0.bias"])
        np.testing.assert_array_equal(result.tensors["policy.weight"], tensors["policy.weight"])


def test_the_halves_turn_as_little_as_the_weights_move() -> None:
    # ranges of the values between them are measured rarely: signs must not flip
    tensors = some_tensors(IMAGES, 6)
    link, context = LowRank(4), Context()
    before = compress(link, IMAGES, tensors, context).tensors
    for version in range(5):
        tensors = moved(tensors, 1e-3, version)
        after = compress(link, IMAGES, tensors, context).tensors
        for half in ("hidden.0.up.weight", "hidden.0.down.weight"):
            # a step of subspace iteration turns towards the largest values, by less than its size
            assert np.linalg.norm(after[half] - before[half]) < 0.2 * np.linalg.norm(before[half])
        before = after
    rng = np.random.default_rng(7)
    basis = best_basis(rng.normal(size=(9, 7)).astype(np.float32), 4)
    turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    turned = (basis @ turn * [1, -1, 1, -1]).astype(np.float32)
    np.testing.assert_allclose(turned_towards(turned, basis), basis, atol=1e-5)


@pytest.mark.parametrize("moved", [0.0, 1e-3, 0.02, 0.3, 5.0])
def test_the_nearest_orthogonal_matrix_is_that_of_the_singular_vectors(moved: float) -> None:
    rng = np.random.default_rng(3)
    turn, _ = np.linalg.qr(rng.normal(size=(48, 48)))
    matrix = (turn + moved * rng.normal(size=(48, 48)) / 48).astype(np.float32)
    left, _, right = np.linalg.svd(matrix.astype(np.float64))
    np.testing.assert_allclose(orthogonal_factor(matrix), left @ right, atol=2e-5)


def test_a_basis_of_weights_that_stay_does_not_turn() -> None:
    weights = some_tensors(IMAGES, 17)
    link, context, products = LowRank(4), Context(), []
    for version in range(12):
        # from new weights in the third version on, whose space is another one
        tensors = some_tensors(IMAGES, 16) if version < 2 else weights
        policy = link.compress(Policy.of(IMAGES, tensors, PolicyVersion(0, version)), context)
        products.append(policy.tensors["hidden.1.up.weight"])
    # subspace iteration alone turns it by a tenth of its length in each
    for one, next_one in pairwise(products[2:]):
        assert np.abs(one.T @ next_one - np.eye(4)).max() < 0.02


def test_after_a_jump_the_halves_are_turned_back_as_far_as_can_be() -> None:
    link, context = LowRank(3), Context()
    ups = []
    for rows, values in (([0, 1, 2], [3.0, 2.0, 1.0]), ([0, 1, 10], [1.0, 2.0, 5.0])):
        weight = np.zeros((20, 72), np.float32)
        weight[rows, [0, 1, 2]] = values
        result = compress(link, IMAGES, with_hidden(weight), context)
        ups.append(result.tensors["hidden.0.up.weight"])
    np.testing.assert_allclose(ups[1][:, :2], ups[0][:, :2], atol=1e-6)
    np.testing.assert_allclose(np.abs(ups[1][10]), [0.0, 0.0, 1.0], atol=1e-6)
