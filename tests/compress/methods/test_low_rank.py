"""Factored layers: their error, their ranks, what is refused, and actors that run them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.policies import ResidualSection, build_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import ObservationSpec, PolicyVersion
from compress import (
    ArtifactRuntime,
    ChainError,
    Context,
    LowRank,
    Policy,
    check_compressor,
    parse_chain,
)
from compress.graphs.graph_network import GraphNetwork
from compress.graphs.policy_graph import PolicyGraph
from compress.methods.low_rank import (
    largest_paying_rank,
    rank_of_share,
)
from tests.support.acting import Acting
from tests.support.architectures import altered
from tests.support.contexts import context_of
from tests.support.low_rank import IMAGES, compress, moved, product, truncated
from tests.support.random_policies import some_observations, some_tensors

RESIDUAL = altered(IMAGES, convolutions=(), sections=(ResidualSection(8, (6,)),), hidden=(20,))


FLAT = build_architecture(
    "flat", ObservationSpec.plain((6,), "float32"), 3, (), (16, 14), "tanh", separate_value=True
)


def reference(architecture, tensors, observations):
    """Logits and values of the uncompressed policy's module, in float64."""
    network = PolicyNetwork(architecture, seed=0)
    load_tensors(network, tensors)
    network = network.double()
    with torch.no_grad():
        logits, values = network(torch.from_numpy(observations))
    return logits.numpy(), values.numpy()


def graph_outputs(policy, observations):
    with torch.inference_mode():
        outputs = GraphNetwork(policy.graph).load(policy.tensors)(torch.from_numpy(observations))
    return tuple(output.numpy() for output in outputs)


@pytest.mark.parametrize(
    ("architecture", "link", "ranks"),
    [
        (IMAGES, LowRank(3), {"hidden.0": 3, "hidden.1": 3}),
        (
            IMAGES,
            LowRank(3, convolutions=True),
            {"convolutions.0": 3, "hidden.0": 3, "hidden.1": 3},
        ),
        (
            RESIDUAL,
            LowRank(3, convolutions=True),
            dict.fromkeys(
                (
                    "hidden.0",
                    "sections.0.blocks.0.first",
                    "sections.0.blocks.0.second",
                    "sections.0.convolution",
                ),
                3,
            ),
        ),
        (IMAGES, LowRank(8), {"hidden.0": 8}),  # 8 · (12 + 20) would be more than 12 · 20
        (IMAGES, LowRank(1, layers=["policy"]), {"policy": 1}),
        (FLAT, LowRank(4), {"hidden.0": 4, "hidden.1": 4}),
    ],
)
def test_a_factored_policy_is_the_one_with_the_best_approximations(
    architecture, link, ranks
) -> None:
    tensors = some_tensors(architecture, 1)
    result = compress(link, architecture, tensors, Context())
    assert dict(result.graph.ranks) == ranks
    assert result.graph == link.plan(PolicyGraph(architecture))
    approximated = dict(tensors)
    for name, rank in ranks.items():
        weight = f"{name}.weight"
        approximated[weight] = truncated(tensors[weight], rank).astype(np.float32)
    observations = some_observations(architecture, 6)
    logits, values = reference(architecture, approximated, observations)
    answers = graph_outputs(result, observations)
    np.testing.assert_allclose(answers[0], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answers[1], values, rtol=1e-4, atol=1e-5)
    assert np.abs(logits - reference(architecture, tensors, observations)[0]).max() > 0.01


def test_a_layer_that_has_a_small_rank_loses_nothing() -> None:
    tensors = some_tensors(IMAGES, 2)
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 72)) / 10
    tensors["hidden.0.weight"] = weight.astype(np.float32)
    observations = some_observations(IMAGES, 6)
    expected, values = reference(IMAGES, tensors, observations)
    context = Context()
    for link in (LowRank(2, layers=["hidden.0"]), LowRank(0.9999, layers=["hidden.0"])):
        result = compress(link, IMAGES, tensors, context)
        assert result.graph.ranks == (("hidden.0", 2),)
        answers = graph_outputs(result, observations)
        np.testing.assert_allclose(answers[0], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(answers[1], values, rtol=1e-4, atol=1e-5)


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
    np.testing.assert_allclose(
        product(result, "hidden.0"), truncated(tensors["hidden.0.weight"], 3), atol=1e-5
    )


@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e-20, 1e18, 1e36])
@pytest.mark.parametrize("link", [LowRank(2), LowRank(0.9)], ids=lambda link: link.id)
def test_dead_and_extreme_weights_stay_finite(link, scale) -> None:
    context = Context()
    rng = np.random.default_rng(13)
    for version in range(3):
        weight = np.outer(rng.normal(size=20), rng.normal(size=72)) * scale
        tensors = {**some_tensors(IMAGES, version), "hidden.0.weight": weight.astype(np.float32)}
        result = compress(link, IMAGES, tensors, context)
        assert all(np.isfinite(tensor).all() for tensor in result.tensors.values())
        tolerance = 1e-5 * float(np.abs(weight).max()) + 1e-44
        np.testing.assert_allclose(product(result, "hidden.0"), weight, rtol=1e-4, atol=tolerance)


def test_a_layer_that_was_dead_is_found_when_it_wakes() -> None:
    link, context = LowRank(2), Context()
    for weight in (np.zeros((20, 72)), np.eye(20, 72)[:, ::-1] * (np.arange(20) > 17)[:, None]):
        tensors = {**some_tensors(IMAGES, 14), "hidden.0.weight": weight.astype(np.float32)}
        result = compress(link, IMAGES, tensors, context)
        np.testing.assert_allclose(product(result, "hidden.0"), weight, atol=1e-6)


def test_weights_that_are_all_equal_have_rank_one() -> None:
    tensors = {n: np.full(s, 0.5, np.float32) for n, s in IMAGES.tensor_shapes().items()}
    result = compress(LowRank(0.99), IMAGES, tensors, Context())
    assert dict(result.graph.ranks) == {"hidden.0": 1, "hidden.1": 1}
    np.testing.assert_allclose(product(result, "hidden.0"), np.full((20, 72), 0.5), rtol=1e-5)


@pytest.mark.parametrize(
    "rank", [0, -1, 0.0, 1.0, 64.0, 1.5, -0.5, float("nan"), float("inf"), True, "64"]
)
def test_ranks_that_are_neither_a_rank_nor_a_share_are_refused(rank) -> None:
    with pytest.raises(
        ChainError, match=r"low_rank\.rank: expected whole number ≥ 1 or number > 0 and < 1, got"
    ):
        LowRank(rank)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": "hidden.0"}, "layers: expected list of text or null, got 'hidden.0'"),
        (
            {"layers": []},
            "layers: expected list of .*, got a list; .*layers, one at least",
        ),
        ({"decide_every": 0}, "decide_every: expected whole number ≥ 1 or null, got 0"),
        ({"decide_every": 2.5}, "decide_every: expected whole number ≥ 1 or null, got 2.5"),
    ],
)
def test_wrong_settings_are_refused(settings, message) -> None:
    with pytest.raises(ChainError, match=message):
        LowRank(2, **settings)


@pytest.mark.parametrize(
    ("graph", "link", "message"),
    [
        (PolicyGraph(IMAGES, precision="int8"), LowRank(2), "after the quantisation to int8"),
        (PolicyGraph(IMAGES, runtime="onnx", static=True), LowRank(2), "comes after onnx"),
        (PolicyGraph(IMAGES, ranks=(("hidden.0", 2),)), LowRank(2), "hidden.0 is factored already"),
        (PolicyGraph(IMAGES), LowRank(16), "hidden.0 up to 15, hidden.1 up to 7"),
        (
            PolicyGraph(IMAGES),
            LowRank(8, layers=["hidden.0", "hidden.1"]),
            r"rank 8 would cost no less .*: hidden.1 up to 7",
        ),
        (PolicyGraph(IMAGES), LowRank(2, layers=["hidden.2"]), "'hidden.2' is unknown; expected"),
        (PolicyGraph(FLAT), LowRank(2, layers=["value_hidden.0"]), "'value_hidden.0' is unknown"),
        (PolicyGraph(altered(IMAGES, hidden=())), LowRank(2), "no hidden dense layer to factor"),
        (PolicyGraph(altered(FLAT, hidden=(1,))), LowRank(0.5), "hidden.0 up to 0"),
    ],
)
def test_graphs_that_cannot_be_factored_are_refused(graph, link, message) -> None:
    with pytest.raises(ChainError, match=message):
        link.plan(graph)


@pytest.mark.parametrize(
    ("link", "name"),
    [
        (LowRank(), "low_rank=0.9"),
        (LowRank(4), "low_rank=4"),
        (LowRank(0.5), "low_rank=0.5"),
        (LowRank(2, convolutions=True), "low_rank=2-convolutions"),
        (LowRank(2, layers=["policy"]), "low_rank=2-policy"),
    ],
)
def test_the_link_keeps_the_contract(link, name) -> None:
    assert link.id == name
    check_compressor(link)
    if not link.settings.convolutions and link.id != "low_rank=2-policy":
        check_compressor(link, FLAT)


@pytest.mark.parametrize(
    "items",
    [
        [{"low_rank": 4}, "onnx"],
        [{"low_rank": 4}],
        [{"low_rank": {"rank": 3, "convolutions": True}}, "fuse", "onnx"],
        ["fuse", {"low_rank": {"rank": 3, "convolutions": True}}, "torchscript"],
    ],
    ids=str,
)
def test_actors_see_the_new_weights_after_every_version(items) -> None:
    chain = parse_chain(items)
    observations = some_observations(IMAGES, 8)
    actor, context = Acting(ArtifactRuntime(IMAGES)), context_of(observations)
    tensors, answers = some_tensors(IMAGES, 15), []
    for version in range(3):
        tensors = moved(tensors, 0.3, version)
        artifact = chain.compress(Policy.of(IMAGES, tensors, PolicyVersion(0, version)), context)
        assert artifact.graph == chain.plan(IMAGES)
        assert len(artifact.graph.ranks) == (3 if "convolutions" in str(items) else 2)
        actor.load(artifact)
        answers.append(actor.parameters(observations))
        multiplied = dict(tensors)
        for name, rank in artifact.graph.ranks:
            weight = tensors[f"{name}.weight"]
            made = product(artifact, name)
            if name == "convolutions.0" and artifact.graph.scale_folded:
                made = made * 255.0
            multiplied[f"{name}.weight"] = made.astype(np.float32)
            best = np.linalg.norm(truncated(weight, rank) - weight)
            assert np.linalg.norm(made - weight) < 1.15 * best
        expected, _ = reference(IMAGES, multiplied, observations)
        np.testing.assert_allclose(answers[-1], expected, rtol=1e-3, atol=1e-4)
    assert min(np.abs(answers[i] - answers[i - 1]).max() for i in (1, 2)) > 0.1


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.03), ("int8", 0.05)])
def test_factored_policies_can_be_quantised_in_every_version(precision, tolerance) -> None:
    chain = parse_chain([{"low_rank": 4}, precision, "onnx"])
    exact_chain = parse_chain([{"low_rank": 4}, "onnx"])
    observations = some_observations(IMAGES, 40)
    context, exact_context = context_of(observations), context_of(observations)
    actor, exact_actor = Acting(ArtifactRuntime(IMAGES)), Acting(ArtifactRuntime(IMAGES))
    tensors = some_tensors(IMAGES, 16)
    for version in range(4):  # int8 keeps the ranges that it measured in the first
        tensors = moved(tensors, 0.02, version)
        policy = Policy.of(IMAGES, tensors, PolicyVersion(0, version))
        actor.load(chain.compress(policy, context))
        exact_actor.load(exact_chain.compress(policy, exact_context))
        expected = exact_actor.parameters(observations)
        error = np.abs(actor.parameters(observations) - expected).max() / np.abs(expected).max()
        assert 0.0 < error < tolerance
