"""Corrections of pruned layers: least squares by another solver, and what they must leave alone."""

from __future__ import annotations

import numpy as np
import pytest

from compress import Context, Policy, Pruning, RefusedTensors
from compress.graphs.units import keep_units
from compress.methods.reconstruction import reconstruction
from tests.support.contexts import context_of, seen
from tests.support.pruning_oracle import (
    ARCHITECTURES,
    FLAT,
    IMAGES,
    assert_silences,
    assert_tensors_close,
    least_important,
    reconstructed,
    slow_forward,
)
from tests.support.random_policies import (
    compress,
    graph_outputs,
    some_observations,
    some_tensors,
)


@pytest.mark.parametrize("count", [5, 40])  # fewer observations than inputs, and more
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_narrow_policy_is_fitted_layer_by_layer_to_the_whole(name, count) -> None:
    architecture = ARCHITECTURES[name]
    tensors = some_tensors(architecture, 2)
    visited = some_observations(architecture, count, seed=3)
    pruned = compress(Pruning(0.5), architecture, tensors, context_of(visited))
    removed = least_important(architecture, pruned.graph.architecture, tensors)
    expected = reconstructed(architecture, tensors, removed, visited)
    assert_tensors_close(pruned.tensors, expected, rtol=1e-2, atol=1e-4)
    bare = compress(Pruning(0.5, compensate=False), architecture, tensors, context_of(visited))
    changed = [n for n, t in bare.tensors.items() if np.abs(pruned.tensors[n] - t).max() > 0.001]
    assert len(changed) > 2


@pytest.mark.parametrize(
    ("name", "share"),
    [("images", 0.3), ("one-convolution-tanh", 0.25), ("residual", 0.3), ("flat-shared", 0.4)],
)
def test_a_corrected_policy_is_nearer_to_its_original_where_it_was_not_fitted(name, share) -> None:
    # a scene that changes a little, as between frames
    architecture = ARCHITECTURES[name]
    tensors = some_tensors(architecture, 8)
    scene = some_observations(architecture, 1)
    if architecture.observation["observation"].dtype == "uint8":
        changes = np.random.default_rng(10).integers(
            -15, 16, (80, *architecture.observation["observation"].shape)
        )
        images = (scene + changes).clip(0, 255).astype(np.uint8)
    else:
        images = scene + 0.3 * some_observations(architecture, 80, seed=10)
    visited, observations = images[:40], images[40:]
    original, _, _ = slow_forward(architecture, tensors, observations)
    errors = []
    for compensate in (False, True):
        pruned = compress(
            Pruning(0.5, compensate=compensate), architecture, tensors, context_of(visited)
        )
        errors.append(np.abs(graph_outputs(pruned, observations)[0] - original).mean())
    assert errors[1] < share * errors[0]


def test_what_the_units_that_stay_know_is_put_back_exactly() -> None:
    tensors = some_tensors(IMAGES, 7)
    for layer, unit, like in (
        ("convolutions.0", 1, 4),
        ("convolutions.1", 0, 2),
        ("hidden.0", 3, 5),
        ("hidden.1", 6, 0),
    ):
        for kind in ("weight", "bias"):  # the smallest there is, and twice that is another's output
            tensors[f"{layer}.{kind}"][like] *= 4.0
            tensors[f"{layer}.{kind}"][unit] = 0.01 * tensors[f"{layer}.{kind}"][like]
    link = Pruning(0.1, per_layer={"convolutions": 0.2}, round_to=1, ridge=1e-9)
    pruned = compress(link, IMAGES, tensors, context_of(some_observations(IMAGES, 100)))
    removed = least_important(IMAGES, pruned.graph.architecture, tensors)
    assert removed == {"convolutions.0": [1], "convolutions.1": [0], "hidden.0": [3]}
    assert_silences(pruned, IMAGES, tensors, {}, rtol=1e-3)


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("name", ["images", "flat-shared"])
def test_an_observation_that_never_changes_moves_no_weight(name, count) -> None:
    architecture = ARCHITECTURES[name]
    tensors = some_tensors(architecture, 4)
    visited = np.repeat(some_observations(architecture, 1), count, axis=0)
    pruned = compress(Pruning(0.5), architecture, tensors, context_of(visited))
    bare = compress(Pruning(0.5, compensate=False), architecture, tensors, context_of(visited))
    dense = [n for n in bare.tensors if n.endswith("weight") and bare.tensors[n].ndim == 2]
    for tensor in dense:  # a convolution sees differences between positions
        np.testing.assert_allclose(
            pruned.tensors[tensor], bare.tensors[tensor], rtol=1e-4, atol=1e-5, err_msg=tensor
        )
    logits, _, _ = slow_forward(architecture, tensors, visited[:1])
    np.testing.assert_allclose(graph_outputs(pruned, visited[:1])[0], logits, rtol=1e-3, atol=1e-4)


def test_layers_that_read_nothing_leave_everything_as_it_is() -> None:
    tensors = some_tensors(FLAT, 5)
    for tower in ("hidden", "value_hidden"):
        tensors[f"{tower}.0.weight"][:] = 0.0
        tensors[f"{tower}.0.bias"][:] = 0.0  # tanh of it is zero: what the next layer reads
    pruned = compress(Pruning(0.5), FLAT, tensors, context_of(some_observations(FLAT, 9)))
    bare = compress(Pruning(0.5, compensate=False), FLAT, tensors, Context())
    assert_tensors_close(
        {n: t for n, t in pruned.tensors.items() if "hidden" in n},
        {n: t for n, t in bare.tensors.items() if "hidden" in n},
        rtol=0,
        atol=1e-7,
    )


def test_corrections_are_measured_again_when_they_are_due() -> None:
    link, context = Pruning(0.5, measure_every=2), Context()
    versions = [some_tensors(IMAGES, 20)]
    for step in range(3):  # small steps: the same units stay the least important
        versions.append({n: t + np.float32(1e-3 * step) for n, t in versions[0].items()})
    shown = [some_observations(IMAGES, 20, seed) // (1 + seed) for seed in range(4)]
    corrections = {}
    for index, (tensors, visited) in enumerate(zip(versions, shown, strict=True)):
        context.visited = seen(visited)
        pruned = compress(link, IMAGES, tensors, context)
        bare = compress(Pruning(0.5, compensate=False), IMAGES, tensors).tensors
        if index % 2 == 0:
            removed = least_important(IMAGES, pruned.graph.architecture, versions[0])
            fitted = reconstructed(IMAGES, tensors, removed, visited)
            corrections = {n: fitted[n] - bare[n] for n in fitted}
        expected = {n: bare[n] + corrections[n] for n in bare}
        assert_tensors_close(pruned.tensors, expected, rtol=1e-2, atol=2e-4)


def test_what_few_observations_said_is_asked_again_of_twice_as_many_or_all_that_are_wanted() -> (
    None
):
    link, context = Pruning(0.5, measure_every=100, observations=30), Context()
    first, others = some_tensors(IMAGES, 20), some_tensors(IMAGES, 21)
    visited, removed = some_observations(IMAGES, 40), None
    # 19 are fewer than twice 10, 20 are not; 29 are neither twice 20 nor the 30 that it wants
    for tensors, count, measured_on in (
        (first, 10, 10),
        (first, 19, 10),
        (others, 20, 20),
        (others, 29, 20),
        (others, 30, 30),
        (others, 40, 30),
    ):
        context.visited = seen(visited[:count])
        pruned = compress(link, IMAGES, tensors, context)
        removed = removed or least_important(IMAGES, pruned.graph.architecture, tensors)
        expected = reconstructed(IMAGES, tensors, removed, visited[:measured_on])
        assert_tensors_close(pruned.tensors, expected, rtol=1e-2, atol=2e-4)
    # by the others' weights other units would go, but that is no matter of observations
    assert removed != least_important(IMAGES, pruned.graph.architecture, others)
    assert context.breaks == 0


@pytest.mark.parametrize("compensate", [False, True])
def test_units_chosen_by_few_observations_are_chosen_again_by_twice_as_many(compensate) -> None:
    settings = {"importance": "activation", "compensate": compensate}
    link, context = Pruning(0.5, **settings, reselect_every=100), Context()
    tensors, visited = some_tensors(IMAGES, 20), some_observations(IMAGES, 40)
    visited[:4] = 0  # of the first ones only biases are left
    kept = []
    for count, measured_on in ((4, 4), (7, 4), (40, 40)):
        context.visited = seen(visited[:count])
        pruned = compress(link, IMAGES, tensors, context)
        once = compress(
            Pruning(0.5, **settings), IMAGES, tensors, context_of(visited[:measured_on])
        )
        assert_tensors_close(pruned.tensors, once.tensors, rtol=0, atol=0)
        kept.append(pruned.tensors)
    assert any(not np.array_equal(kept[0][name], kept[2][name]) for name in kept[0])
    assert context.breaks == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"measure_every": 2}, "input or output of convolutions.1 is not finite"),
        ({"reselect_every": 2}, "input or output of convolutions.1 is not finite"),
        ({"observations": 20}, "input or output of convolutions.1 is not finite"),
        (
            {"importance": "activation", "reselect_every": 2, "compensate": False},
            "the importance of units of convolutions.0 is not finite",
        ),
    ],
    ids=str,
)
def test_what_was_measured_on_numbers_that_are_not_finite_is_not_remembered(
    settings, reason
) -> None:
    visited, good = some_observations(IMAGES, 20), some_tensors(IMAGES, 1)
    huge = np.full_like(good["convolutions.0.weight"], 3e38)
    overflowing = {**good, "convolutions.0.weight": huge}  # finite, and what they give is not
    link, context = (
        Pruning(0.5, **settings),
        context_of(visited[: settings.get("observations", 40) // 2]),
    )
    for _ in range(2):
        compress(link, IMAGES, good, context)
    context.visited = seen(visited)
    with pytest.raises(RefusedTensors, match=reason):  # the third version, in which it is due
        compress(link, IMAGES, overflowing, context)
    again = compress(link, IMAGES, good, context)
    fresh = compress(Pruning(0.5, **settings), IMAGES, good, context_of(visited))
    assert_tensors_close(again.tensors, fresh.tensors, rtol=1e-4, atol=1e-5)
    assert all(np.isfinite(tensor).all() for tensor in again.tensors.values())
    assert context.breaks == 0  # no later link was told of the unused units


def test_a_wide_image_is_fitted_on_some_of_its_positions() -> None:
    tensors = some_tensors(IMAGES, 3)
    policy = Policy.of(IMAGES, tensors)
    kept = {
        "convolutions.0": np.arange(3),
        "convolutions.1": np.arange(5),
        "hidden.0": np.arange(10),
        "hidden.1": np.arange(7),
    }
    visited = some_observations(IMAGES, 1000)  # nine positions each
    drawn = [
        reconstruction(policy, kept, seen(visited), ridge=0.03, rng=np.random.default_rng(seed))
        for seed in (0, 0, 1)
    ]
    name = "convolutions.1.weight"
    np.testing.assert_array_equal(drawn[0][name], drawn[1][name])
    assert 0.0 < np.abs(drawn[0][name] - drawn[2][name]).max() < 0.15 * np.abs(drawn[0][name]).max()
    narrow = keep_units(IMAGES, tensors, kept)[1]
    removed = {"convolutions.0": [3, 4, 5]}
    expected = reconstructed(IMAGES, tensors, removed, visited)[name] - narrow[name]
    np.testing.assert_allclose(drawn[0][name], expected, atol=0.15 * np.abs(expected).max())
