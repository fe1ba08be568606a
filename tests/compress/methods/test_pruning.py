"""Which units pruning removes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.policies import Convolution, build_architecture, describe_architecture
from aclearn.types import ObservationSpec, PolicyVersion
from compress import (
    ArtifactRuntime,
    ChainError,
    Context,
    Fusion,
    NeedsObservations,
    Policy,
    Pruning,
    parse_chain,
)
from compress.graphs.policy_graph import PolicyGraph
from tests.support.acting import Acting
from tests.support.architectures import altered, parts_of
from tests.support.contexts import context_of, seen
from tests.support.pruning_oracle import (
    ARCHITECTURES,
    FLAT,
    IMAGES,
    assert_silences,
    assert_tensors_close,
    least_important,
    widths_of,
)
from tests.support.random_policies import compress, some_observations, some_tensors


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_pruned_policy_is_the_original_with_the_removed_units_at_zero(name) -> None:
    architecture = ARCHITECTURES[name]
    tensors = some_tensors(architecture, 1)
    pruned = compress(Pruning(0.5, compensate=False), architecture, tensors)
    small = pruned.graph.architecture
    assert all(s < w for s, w in zip(widths_of(small), widths_of(architecture), strict=True))
    removed = least_important(architecture, small, tensors)
    assert_silences(pruned, architecture, tensors, removed)
    with pytest.raises(AssertionError):  # the removed units had an effect
        assert_silences(pruned, architecture, tensors, {})


@settings(max_examples=40, deadline=None)
@given(
    filters=st.lists(st.integers(1, 12), max_size=2),
    hidden=st.lists(st.integers(1, 20), max_size=3),
    sparsity=st.floats(0.01, 0.99),
    round_to=st.sampled_from([1, 4, 8]),
    seed=st.integers(0, 99),
)
def test_every_width_and_share_gives_a_policy_without_its_least_important_units(
    filters, hidden, sparsity, round_to, seed
) -> None:
    if not filters and not hidden:
        hidden = [1]
    convolutions = tuple(Convolution(count, 2, 1) for count in filters)
    shape = (2, 4, 4) if filters else (3,)
    architecture = build_architecture(
        "any", ObservationSpec.plain(shape, "float32"), 2, convolutions, tuple(hidden)
    )
    tensors = some_tensors(architecture, seed)
    link = Pruning(sparsity, round_to=round_to)
    pruned = compress(link, architecture, tensors)
    small = pruned.graph.architecture
    assert pruned.graph == link.plan(PolicyGraph(architecture))
    for width, kept in zip(widths_of(architecture), widths_of(small), strict=True):
        assert 1 <= kept <= width
        assert width - kept <= width * sparsity + 1e-6
        assert (width - kept > 0) == (np.floor(width * sparsity) > 0)
    removed = least_important(architecture, small, tensors)
    assert_silences(pruned, architecture, tensors, removed, rtol=1e-3)


def test_the_presets_lose_the_share_that_was_asked() -> None:
    images = ObservationSpec.plain((4, 84, 84), "uint8")
    for name, widths in (
        ("nature", [16, 32, 32, 256]),
        ("accerl-net3", [2, 2, 16]),
        ("impala-resnet", [8, 8, 16, 16, 16, 16, 128]),
    ):
        architecture = describe_architecture(name, observation=images, actions=6)
        planned = Pruning(0.5).plan(PolicyGraph(architecture)).architecture
        assert widths_of(planned) == widths
    filters = [section.filters for section in parts_of(planned).sections]
    assert filters == [16, 32, 32]  # tied by sums


def test_filters_that_sums_tie_together_are_refused_by_name() -> None:
    residual = PolicyGraph(ARCHITECTURES["residual"])
    for layer in ("convolution", "blocks.0.second"):
        name = f"sections.0.{layer}"
        with pytest.raises(ChainError, match=rf"'{name}' is no layer .*first.* they stay$"):
            Pruning(0.5, per_layer={name: 0.5}).plan(residual)
    own = Pruning(0.5, per_layer={"sections.0.blocks.1.first": 0.25}, round_to=1)
    assert widths_of(own.plan(residual).architecture) == [3, 3, 3, 5, 4]


def test_units_that_always_give_the_same_are_removed_without_a_trace() -> None:
    tensors = some_tensors(IMAGES, 7)
    for layer, units in (("convolutions.0", [1, 4]), ("convolutions.1", [0, 2]), ("hidden.1", [5])):
        tensors[f"{layer}.weight"][units] = 0.0
        tensors[f"{layer}.bias"][units] = 0.02  # constant, not dead, and the smallest there are
    link = Pruning(0.34, per_layer={"hidden.0": 0.0, "hidden.1": 0.2, "convolutions.1": 0.4})
    pruned = compress(link, IMAGES, tensors, context_of(some_observations(IMAGES, 8)))
    assert widths_of(pruned.graph.architecture) == [4, 4, 10, 6]  # 3 filters are made an even 4
    assert_silences(pruned, IMAGES, tensors, {})


def ordered_tensors(order):
    """FLAT's weights; in `order`, each unit of the first layers is more important than the last."""
    tensors = some_tensors(FLAT, 11)
    for tower in ("hidden", "value_hidden"):
        weight = tensors[f"{tower}.0.weight"]
        size = 1.0 + np.argsort(order)[:, None]
        tensors[f"{tower}.0.weight"] = (weight / np.linalg.norm(weight, axis=1)[:, None]) * size
        tensors[f"{tower}.0.weight"] = tensors[f"{tower}.0.weight"].astype(np.float32)
        tensors[f"{tower}.0.bias"][:] = 0.0
    return tensors


def test_the_units_stay_the_same_until_they_are_chosen_again() -> None:
    link, context = Pruning(0.5, round_to=1, reselect_every=3), Context()
    rising = ordered_tensors(np.arange(12))
    falling = ordered_tensors(np.arange(12)[::-1])
    results = [compress(link, FLAT, t, context) for t in (rising, falling, falling, falling)]
    for result, tensors, kept in zip(
        results,
        (rising, falling, falling, falling),
        (slice(6, 12), slice(6, 12), slice(6, 12), slice(0, 6)),
        strict=True,
    ):
        for tower in ("hidden", "value_hidden"):
            name = f"{tower}.0.weight"
            np.testing.assert_array_equal(result.tensors[name], tensors[name][kept])


def test_another_graph_is_chosen_for_afresh() -> None:
    link, context = Pruning(0.5, round_to=1), Context()
    tensors = ordered_tensors(np.arange(12)[::-1])
    compress(link, FLAT, ordered_tensors(np.arange(12)), context)
    shared = altered(FLAT, separate_value=False)
    mine = {name: t for name, t in tensors.items() if not name.startswith("value_hidden")}
    result = compress(link, shared, mine, context)
    np.testing.assert_array_equal(result.tensors["hidden.0.weight"], tensors["hidden.0.weight"][:6])


def test_without_observations_magnitude_does_without_and_activation_waits() -> None:
    tensors = some_tensors(IMAGES, 12)
    context = Context()
    bare = compress(Pruning(0.5), IMAGES, tensors, context)
    plain = compress(Pruning(0.5, compensate=False), IMAGES, tensors)
    assert_tensors_close(bare.tensors, plain.tensors, rtol=0)
    context.visited = seen(some_observations(IMAGES, 8))
    later = compress(Pruning(0.5), IMAGES, tensors, context)
    assert not np.array_equal(later.tensors["hidden.0.bias"], bare.tensors["hidden.0.bias"])

    link, context = Pruning(0.5, importance="activation"), Context()
    assert link.needs_observations and not Pruning(0.5).needs_observations
    with pytest.raises(NeedsObservations, match=r"prune=0\.5-activation needs observations"):
        compress(link, IMAGES, tensors, context)
    context.visited = seen(some_observations(IMAGES, 8))
    compress(link, IMAGES, tensors, context)


def test_a_layer_can_have_a_share_of_its_own() -> None:
    link = Pruning(0.5, per_layer={"convolutions.1": 0.2, "hidden.0": 0}, round_to=1)
    planned = link.plan(PolicyGraph(IMAGES)).architecture
    assert widths_of(planned) == [3, 4, 10, 4]
    assert link.id == "prune=0.5-convolutions.1=0.2-hidden.0=0"
    own = altered(FLAT, hidden=(10, 10))
    planned = Pruning(0.5, per_layer={"hidden.1": 0.9}, round_to=1).plan(PolicyGraph(own))
    assert parts_of(planned.architecture).hidden == (5, 1)


def test_a_kind_of_layers_can_have_a_share_of_its_own() -> None:
    link = Pruning(0.5, per_layer={"convolutions": 0, "hidden": 0.2, "hidden.1": 0.75}, round_to=1)
    assert widths_of(link.plan(PolicyGraph(IMAGES)).architecture) == [6, 5, 8, 2]
    ranked = Pruning(0.5, per_layer={"hidden": 0.0}, scope="global", round_to=1)
    pruned = compress(ranked, IMAGES, some_tensors(IMAGES, 3))
    widths = widths_of(pruned.graph.architecture)
    assert sum(widths[:2]) == 11 - 5 and widths[2:] == [10, 7]
    own = Pruning(0.5, per_layer={"hidden": 0.25}, round_to=1).plan(PolicyGraph(FLAT))
    assert parts_of(own.architecture).hidden == (9, 7)  # the value's own tower has the same widths
    with pytest.raises(ChainError, match="'hidden' is no layer that can be pruned"):
        Pruning(0.5, per_layer={"hidden": 0.2}).plan(PolicyGraph(altered(IMAGES, hidden=())))


@pytest.mark.parametrize(
    ("graph", "settings_", "message"),
    [
        (PolicyGraph(IMAGES, ranks=(("hidden.0", 2),)), {}, "hidden.0; put low_rank after prune"),
        (PolicyGraph(altered(FLAT, hidden=())), {}, "neither convolutions nor hidden layers"),
        (
            PolicyGraph(IMAGES),
            {"per_layer": {"hidden.2": 0.5}},
            "'hidden.2' is no layer .* one of convolutions.0, convolutions.1, hidden.0, hidden.1",
        ),
        (PolicyGraph(IMAGES), {"per_layer": {"policy": 0.5}}, "'policy' is no layer"),
        (PolicyGraph(FLAT), {"per_layer": {"value_hidden.0": 0.5}}, "tower follows hidden"),
    ],
)
def test_graphs_that_cannot_be_pruned_are_refused(graph, settings_, message) -> None:
    with pytest.raises(ChainError, match=message):
        Pruning(0.5, **settings_).plan(graph)


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
