"""Pruning: the same function as the original with its least important units held fixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.policies import (
    Architecture,
    PolicyVersion,
    ResidualSection,
    describe_architecture,
)
from aclearn.policies.spec import Convolution
from compress import (
    ONNX,
    ArtifactPolicy,
    ChainError,
    CompressorChain,
    Context,
    Fusion,
    LowRank,
    NeedsObservations,
    Policy,
    Pruning,
    check_compressor,
    parse_chain,
)
from compress.graph import PolicyGraph
from compress.importance import (
    globally_removed,
    influences,
    kept_width,
    most_important,
    removed_count,
)
from compress.network import GraphNetwork

IMAGES = Architecture(
    "images", (2, 9, 9), "uint8", 3, (Convolution(6, 3, 2), Convolution(5, 2, 1)), (10, 7)
)
FLAT = Architecture("flat", (5,), "float32", 3, (), (12, 9), "tanh", separate_value=True)
ARCHITECTURES = {
    "images": IMAGES,
    "images-without-hidden": replace(IMAGES, hidden=()),
    "one-convolution-tanh": replace(
        IMAGES, convolutions=(Convolution(9, 4, 3),), hidden=(6,), activation="tanh"
    ),
    "residual": replace(
        IMAGES,
        convolutions=(),
        sections=(ResidualSection(5, (6, 4)), ResidualSection(4, (5,))),
    ),
    "flat-with-its-own-value": FLAT,
    "flat-shared": replace(FLAT, separate_value=False, activation="relu"),
    "flat-uint8": replace(FLAT, observation_dtype="uint8", hidden=(8,)),
}


def some_tensors(architecture, seed):
    """Weights of a size that keeps activations near 1, biases that matter."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(0, 0.5 if len(shape) == 1 else np.prod(shape[1:]) ** -0.5, shape).astype(
            np.float32
        )
        for name, shape in architecture.tensor_shapes().items()
    }


def some_observations(architecture, count, seed=0):
    rng = np.random.default_rng(seed)
    shape = (count, *architecture.observation_shape)
    if architecture.observation_dtype == "uint8":
        return rng.integers(0, 256, shape, np.uint8)
    return rng.normal(size=shape).astype(np.float32)


def slow_forward(architecture, tensors, observations, fixed=None):
    """Logits, values and every layer's activations by plain loops in float64.

    `fixed` is layer → unit → what it gives instead: a number, or one for each position.
    """
    fixed, given = fixed or {}, {}
    activate = np.tanh if architecture.activation == "tanh" else lambda x: np.maximum(x, 0.0)
    x = observations.astype(np.float64)
    if architecture.observation_dtype == "uint8":
        x = x / 255.0

    def weights(name):
        return (tensors[f"{name}.{kind}"].astype(np.float64) for kind in ("weight", "bias"))

    def hold(name, x):
        given[name] = x.copy()
        for unit, value in fixed.get(name, {}).items():
            x[:, unit] = value
        return x

    def convolve(name, x, stride, padding=0, source=None):
        weight, bias = weights(name)
        x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        for unit, value in fixed.get(source, {}).items():
            x[:, unit] = np.where(x[:, unit] == 0.0, value, x[:, unit])  # to the edge and beyond
        kernel = weight.shape[2]
        size = (x.shape[2] - kernel) // stride + 1
        out = np.zeros((len(x), len(weight), size, size))
        for row in range(size):
            for column in range(size):
                top, left = row * stride, column * stride
                patch = x[:, :, top : top + kernel, left : left + kernel]
                for unit in range(len(weight)):
                    out[:, unit, row, column] = (patch * weight[unit]).sum((1, 2, 3)) + bias[unit]
        return out

    def pool(x):
        size = (x.shape[2] + 1) // 2
        out = np.zeros((*x.shape[:2], size, size))
        for row in range(size):
            for column in range(size):
                top, left = max(0, 2 * row - 1), max(0, 2 * column - 1)
                seen = x[:, :, top : 2 * row + 2, left : 2 * column + 2]
                out[:, :, row, column] = seen.max((2, 3))
        return out

    def dense(name, x):
        weight, bias = weights(name)
        out = np.zeros((len(x), len(weight)))
        for unit in range(len(weight)):
            out[:, unit] = (x * weight[unit]).sum(axis=1) + bias[unit]
        return out

    for i, conv in enumerate(architecture.convolutions):
        x = hold(f"convolutions.{i}", activate(convolve(f"convolutions.{i}", x, conv.stride)))
    for i, section in enumerate(architecture.sections):
        x = pool(convolve(f"sections.{i}.convolution", x, 1, 1))
        for j in range(len(section.blocks)):
            first, second = (f"sections.{i}.blocks.{j}.{end}" for end in ("first", "second"))
            inner = hold(first, activate(convolve(first, activate(x), 1, 1)))
            x = x + convolve(second, inner, 1, 1, source=first)
    x = activate(x) if architecture.sections else x
    flat = x.reshape(len(x), -1)

    def tower(name):
        x = flat
        for i in range(len(architecture.hidden)):
            x = hold(f"{name}.{i}", activate(dense(f"{name}.{i}", x)))
        return x

    policy = tower("hidden")
    value = tower("value_hidden") if architecture.separate_value else policy
    return dense("policy", policy), dense("value", value)[:, 0], given


def graph_outputs(policy, observations):
    with torch.inference_mode():
        outputs = GraphNetwork(policy.graph).load(policy.tensors)(torch.from_numpy(observations))
    return tuple(output.numpy() for output in outputs)


def layers_of(architecture):
    names = {f"convolutions.{i}": c.filters for i, c in enumerate(architecture.convolutions)}
    for i, section in enumerate(architecture.sections):
        names |= {f"sections.{i}.blocks.{j}.first": n for j, n in enumerate(section.blocks)}
    names |= {f"hidden.{i}": width for i, width in enumerate(architecture.hidden)}
    if architecture.separate_value:
        names |= {f"value_hidden.{i}": width for i, width in enumerate(architecture.hidden)}
    return names


def widths_of(architecture):
    inner = [width for section in architecture.sections for width in section.blocks]
    return [c.filters for c in architecture.convolutions] + inner + list(architecture.hidden)


def smallest(scores, count):
    """The `count` units with the smallest scores; of equal ones the later."""
    return sorted(range(len(scores)), key=lambda unit: (scores[unit], -unit))[:count]


def norms(tensors, layer):
    weight, bias = tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]
    return [
        float(np.sqrt((weight[u].astype(np.float64) ** 2).sum() + float(bias[u]) ** 2))
        for u in range(len(bias))
    ]


def least_important(architecture, small, tensors):
    """Layer → the units that pruning by magnitude must have removed to get that small."""
    before, after = layers_of(architecture), layers_of(small)
    return {
        name: smallest(norms(tensors, name), before[name] - after[name])
        for name in before
        if after[name] < before[name]
    }


def mean_of(architecture, given, layer, unit):
    """A unit's mean activation; for each position where a dense layer reads them one by one."""
    last = f"convolutions.{len(architecture.convolutions) - 1}"
    axis = 0 if layer == last else None
    return given[layer][:, unit].mean(axis=axis)


def compress(link, architecture, tensors, context):
    policy = Policy.of(architecture, tensors)
    context.begin(policy)
    return link.compress(policy, context)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_pruned_policy_is_the_original_with_the_removed_units_at_zero(name) -> None:
    architecture = ARCHITECTURES[name]
    tensors = some_tensors(architecture, 1)
    pruned = compress(Pruning(0.5, compensate=False), architecture, tensors, Context())
    small = pruned.graph.architecture
    assert all(s < w for s, w in zip(widths_of(small), widths_of(architecture), strict=True))
    removed = least_important(architecture, small, tensors)
    fixed = {layer: dict.fromkeys(units, 0.0) for layer, units in removed.items()}
    observations = some_observations(architecture, 6)
    logits, values, _ = slow_forward(architecture, tensors, observations, fixed)
    answers = graph_outputs(pruned, observations)
    np.testing.assert_allclose(answers[0], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answers[1], values, rtol=1e-4, atol=1e-5)
    unpruned = slow_forward(architecture, tensors, observations)
    assert np.abs(unpruned[0] - logits).max() > 0.003  # what was removed made a difference


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_compensated_policy_is_the_original_with_the_removed_units_at_their_means(name) -> None:
    architecture = ARCHITECTURES[name]
    tensors = some_tensors(architecture, 2)
    visited = some_observations(architecture, 40, seed=3)
    pruned = compress(Pruning(0.5), architecture, tensors, Context(visited))
    _, _, given = slow_forward(architecture, tensors, visited)
    removed = least_important(architecture, pruned.graph.architecture, tensors)
    fixed = {
        layer: {unit: mean_of(architecture, given, layer, unit) for unit in units}
        for layer, units in removed.items()
    }
    observations = some_observations(architecture, 6)
    logits, values, _ = slow_forward(architecture, tensors, observations, fixed)
    answers = graph_outputs(pruned, observations)
    np.testing.assert_allclose(answers[0], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answers[1], values, rtol=1e-4, atol=1e-5)


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
    architecture = Architecture("any", shape, "float32", 2, convolutions, tuple(hidden))
    tensors = some_tensors(architecture, seed)
    link = Pruning(sparsity, round_to=round_to)
    pruned = compress(link, architecture, tensors, Context())
    small = pruned.graph.architecture
    assert pruned.graph == link.plan(PolicyGraph(architecture))
    for width, kept in zip(widths_of(architecture), widths_of(small), strict=True):
        assert 1 <= kept <= width
        assert width - kept <= width * sparsity + 1e-6
        assert (width - kept > 0) == (np.floor(width * sparsity) > 0)
    fixed = {
        layer: dict.fromkeys(units, 0.0)
        for layer, units in least_important(architecture, small, tensors).items()
    }
    observations = some_observations(architecture, 2)
    logits, values, _ = slow_forward(architecture, tensors, observations, fixed)
    answers = graph_outputs(pruned, observations)
    np.testing.assert_allclose(answers[0], logits, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(answers[1], values, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("count", "sparsity", "round_to", "width"),
    [
        (64, 0.5, 8, 32),
        (64, 0.9, 8, 8),  # 57 may go, 7 stay
        (100, 0.29, 1, 71),
        (10, 0.7, 1, 3),
        (12, 0.5, 8, 8),  # 6 may go, 4 do
        (8, 0.5, 8, 4),  # rounding to 8 would leave nothing to remove
        (32, 0.1, 8, 30),  # 29 stay; 32 is no less, 30 the next even width
        (4, 0.5, 8, 2),
        (3, 0.5, 8, 2),
        (3, 0.99, 8, 2),  # one may stay; 2 is the width that rounds
        (3, 0.99, 1, 1),
        (1, 0.99, 8, 1),
        (2, 0.4, 8, 2),
        (10, 0.999999999999, 1, 1),
    ],
)
def test_widths_are_round_and_never_less_than_asked(count, sparsity, round_to, width) -> None:
    assert kept_width(count, removed_count(count, sparsity), round_to) == width


def test_the_presets_lose_the_share_that_was_asked() -> None:
    def architecture(name):
        return describe_architecture(
            name, observation_shape=(4, 84, 84), observation_dtype="uint8", actions=6
        )

    planned = Pruning(0.5).plan(PolicyGraph(architecture("nature"))).architecture
    assert widths_of(planned) == [16, 32, 32, 256]
    assert planned.flat_size == 32 * 7 * 7
    planned = Pruning(0.5).plan(PolicyGraph(architecture("accerl-net3"))).architecture
    assert widths_of(planned) == [2, 2, 16]
    planned = Pruning(0.5).plan(PolicyGraph(architecture("impala-resnet"))).architecture
    assert widths_of(planned) == [8, 8, 16, 16, 16, 16, 128]
    assert [section.filters for section in planned.sections] == [16, 32, 32]  # tied by sums


def test_filters_that_sums_tie_together_are_refused_by_name() -> None:
    residual = PolicyGraph(ARCHITECTURES["residual"])
    for layer in ("convolution", "blocks.0.second"):
        name = f"sections.0.{layer}"
        with pytest.raises(ChainError, match=rf"'{name}' is no layer .*first.* they stay$"):
            Pruning(0.5, per_layer={name: 0.5}).plan(residual)
    own = Pruning(0.5, per_layer={"sections.0.blocks.1.first": 0.25}, round_to=1)
    assert widths_of(own.plan(residual).architecture) == [3, 3, 3, 5, 4]


def test_a_unit_that_never_answers_goes_first_by_activation() -> None:
    # magnitude would keep it: its weights are the largest, but its bias keeps relu at zero
    architecture = replace(FLAT, hidden=(4,), separate_value=False, activation="relu")
    tensors = some_tensors(architecture, 4)
    tensors["hidden.0.weight"][2] *= 10.0
    tensors["hidden.0.bias"][2] = -1000.0
    tensors["hidden.0.bias"][[0, 1, 3]] = 1.0
    visited = some_observations(architecture, 30)
    by_magnitude = compress(Pruning(0.25), architecture, tensors, Context(visited))
    by_activation = compress(
        Pruning(0.25, importance="activation"), architecture, tensors, Context(visited)
    )
    assert -1000.0 in by_magnitude.tensors["hidden.0.bias"]
    np.testing.assert_array_equal(
        by_activation.tensors["hidden.0.weight"], tensors["hidden.0.weight"][[0, 1, 3]]
    )


@pytest.mark.parametrize("compensate", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_importance_by_activation_is_what_the_next_layer_of_the_policy_loses(
    name, compensate
) -> None:
    architecture = ARCHITECTURES[name]
    tensors = some_tensors(architecture, 5)
    visited = some_observations(architecture, 30, seed=6)
    _, _, given = slow_forward(architecture, tensors, visited)
    link = Pruning(0.5, importance="activation", compensate=compensate)
    pruned = compress(link, architecture, tensors, Context(visited))
    sizes = layers_of(pruned.graph.architecture)
    fixed = {}
    for layer, units in layers_of(architecture).items():
        tower, index = layer.split(".")[:2]
        reader = f"{tower}.{int(index) + 1}"
        if layer.endswith(".first"):
            reader = layer.replace("first", "second")
        elif f"{reader}.weight" not in tensors:
            ends = {"value_hidden": "value", "hidden": "policy"}
            reader = ends.get(tower) or ("hidden.0" if architecture.hidden else "policy")
        weight = tensors[f"{reader}.weight"].astype(np.float64)
        by_unit = np.split(weight, units, axis=1)  # the inputs of one unit are side by side
        scores = []
        for unit in range(units):
            lost = given[layer][:, unit]
            if compensate:
                lost = lost - mean_of(architecture, given, layer, unit)
            scores.append(np.abs(lost).mean() * np.linalg.norm(by_unit[unit]))
        removed = smallest(scores, units - sizes[layer])
        fixed[layer] = {
            unit: mean_of(architecture, given, layer, unit) if compensate else 0.0
            for unit in removed
        }
    observations = some_observations(architecture, 5)
    logits, values, _ = slow_forward(architecture, tensors, observations, fixed)
    answers = graph_outputs(pruned, observations)
    np.testing.assert_allclose(answers[0], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answers[1], values, rtol=1e-4, atol=1e-5)


def test_what_compensation_puts_back_does_not_count() -> None:
    tensors = {name: np.ones(s, np.float32) for name, s in IMAGES.tensor_shapes().items()}
    policy = Policy.of(IMAGES, tensors)
    rng = np.random.default_rng(1)
    _, _, shapes = slow_forward(IMAGES, tensors, some_observations(IMAGES, 2))
    given = {layer: np.zeros((2, a.shape[1], a[0, 0].size)) for layer, a in shapes.items()}
    for layer, array in given.items():
        array[:, 0] = rng.normal(size=array.shape[2])  # in time the same, not over the positions
        array[0, 1], array[1, 1] = 0.9, 1.1  # over the positions the same, not in time
        assert array.shape[2] == {"convolutions.0": 16, "convolutions.1": 9}.get(layer, 1)
    plain = influences(policy, given, compensated=False)
    scores = influences(policy, given, compensated=True)
    # outgoing weights of 1: their norm is the root of their number
    assert plain["convolutions.1"][1] == pytest.approx(1.0 * (10 * 9) ** 0.5)
    assert scores["convolutions.1"][:2] == pytest.approx([0.0, 0.1 * (10 * 9) ** 0.5])
    assert scores["hidden.0"][:2] == pytest.approx([0.0, 0.1 * 7**0.5])
    assert scores["hidden.1"][:2] == pytest.approx([0.0, 0.1 * 3**0.5])  # not the value's
    # one bias serves all positions of a convolution
    first = given["convolutions.0"][0, 0]
    lost = np.abs(first - first.mean()).mean()
    assert scores["convolutions.0"][:2] == pytest.approx(
        [lost * (5 * 4) ** 0.5, 0.1 * (5 * 4) ** 0.5]
    )


def test_units_that_always_give_the_same_are_removed_without_a_trace() -> None:
    tensors = some_tensors(IMAGES, 7)
    for layer, units in (("convolutions.0", [1, 4]), ("convolutions.1", [0, 2]), ("hidden.1", [5])):
        tensors[f"{layer}.weight"][units] = 0.0
        tensors[f"{layer}.bias"][units] = 0.02  # constant, not dead, and the smallest there are
    link = Pruning(0.34, per_layer={"hidden.0": 0.0, "hidden.1": 0.2, "convolutions.1": 0.4})
    pruned = compress(link, IMAGES, tensors, Context(some_observations(IMAGES, 8)))
    assert widths_of(pruned.graph.architecture) == [4, 4, 10, 6]  # 3 filters are made an even 4
    observations = some_observations(IMAGES, 5, seed=9)
    logits, values, _ = slow_forward(IMAGES, tensors, observations)
    answers = graph_outputs(pruned, observations)
    np.testing.assert_allclose(answers[0], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answers[1], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "share"), [("images", 0.7), ("one-convolution-tanh", 0.25)])
def test_compensation_brings_the_policy_nearer_to_its_original(name, share) -> None:
    # a scene that changes a little, as between frames: much of an activation is its mean; of what
    # a convolution reads, the differences between positions stay
    architecture = ARCHITECTURES[name]
    tensors = some_tensors(architecture, 8)
    scene = some_observations(architecture, 1)
    changes = np.random.default_rng(10).integers(-15, 16, (80, *architecture.observation_shape))
    images = (scene + changes).clip(0, 255).astype(np.uint8)
    visited, observations = images[:40], images[40:]
    original, _, _ = slow_forward(architecture, tensors, observations)
    errors = []
    for compensate in (False, True):
        link = Pruning(0.5, compensate=compensate)
        pruned = compress(link, architecture, tensors, Context(visited))
        errors.append(np.abs(graph_outputs(pruned, observations)[0] - original).mean())
    assert errors[1] < share * errors[0]


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
    shared = replace(FLAT, separate_value=False)
    mine = {name: t for name, t in tensors.items() if not name.startswith("value_hidden")}
    result = compress(link, shared, mine, context)
    np.testing.assert_array_equal(result.tensors["hidden.0.weight"], tensors["hidden.0.weight"][:6])


def test_means_are_measured_again_when_they_are_due() -> None:
    link = Pruning(0.5, measure_every=2)
    context = Context()
    versions = [some_tensors(IMAGES, 20)]
    for step in range(3):  # small steps: the same units stay the least important
        versions.append({n: t + np.float32(1e-4 * step) for n, t in versions[0].items()})
    seen = [some_observations(IMAGES, 20, seed) // (1 + seed) for seed in range(4)]
    probe = some_observations(IMAGES, 4, seed=30)
    measured = {}
    for index, (tensors, visited) in enumerate(zip(versions, seen, strict=True)):
        context.observations = visited
        pruned = compress(link, IMAGES, tensors, context)
        if index % 2 == 0:
            _, _, measured = slow_forward(IMAGES, tensors, visited)
        removed = least_important(IMAGES, pruned.graph.architecture, versions[0])
        fixed = {
            layer: {unit: mean_of(IMAGES, measured, layer, unit) for unit in units}
            for layer, units in removed.items()
        }
        logits, _, _ = slow_forward(IMAGES, tensors, probe, fixed)
        np.testing.assert_allclose(graph_outputs(pruned, probe)[0], logits, rtol=1e-4, atol=1e-5)


def test_without_observations_magnitude_does_without_and_activation_waits() -> None:
    tensors = some_tensors(IMAGES, 12)
    context = Context()
    bare = compress(Pruning(0.5), IMAGES, tensors, context)
    plain = compress(Pruning(0.5, compensate=False), IMAGES, tensors, Context())
    for name, tensor in plain.tensors.items():
        np.testing.assert_array_equal(bare.tensors[name], tensor)
    context.observations = some_observations(IMAGES, 8)
    later = compress(Pruning(0.5), IMAGES, tensors, context)
    assert not np.array_equal(later.tensors["hidden.0.bias"], bare.tensors["hidden.0.bias"])

    link, context = Pruning(0.5, importance="activation"), Context()
    assert link.needs_observations and not Pruning(0.5).needs_observations
    with pytest.raises(NeedsObservations, match=r"prune=0\.5-activation needs observations"):
        compress(link, IMAGES, tensors, context)
    context.observations = some_observations(IMAGES, 8)
    compress(link, IMAGES, tensors, context)


def test_a_layer_can_have_a_share_of_its_own() -> None:
    link = Pruning(0.5, per_layer={"convolutions.1": 0.2, "hidden.0": 0}, round_to=1)
    planned = link.plan(PolicyGraph(IMAGES)).architecture
    assert widths_of(planned) == [3, 4, 10, 4]
    assert link.id == "prune=0.5-convolutions.1=0.2-hidden.0=0"
    own = replace(FLAT, hidden=(10, 10))
    planned = Pruning(0.5, per_layer={"hidden.1": 0.9}, round_to=1).plan(PolicyGraph(own))
    assert planned.architecture.hidden == (5, 1)


def test_a_ranking_over_all_layers_takes_from_where_least_is_needed() -> None:
    # by hand: means are 1 and 2.5, so in means the scores are 1 × 4 and 0.4, 0.4, 0.4, 2.8 (× 2)
    scores = {
        "a": np.array([1.0, 1.0, 1.0, 1.0]),
        "b": np.array([1.0, 7.0, 1.0, 1.0, 1.0, 7.0, 1.0, 1.0]),
    }
    assert globally_removed(scores, 0.5) == {"a": 0, "b": 6}
    # 8 of 12: six of b, then two of the equal ones of a
    assert globally_removed(scores, 0.67) == {"a": 2, "b": 6}
    # 11 of 12, but a keeps one of 4 and b one of 8
    assert globally_removed(scores, 0.99) == {"a": 3, "b": 7}
    # a tenth of 40, rounded up, stays even in a layer of nothing but zeros
    dead = {"dead": np.zeros(40), "a": np.arange(1.0, 41.0)}
    assert globally_removed(dead, 0.5) == {"dead": 36, "a": 4}


def test_global_widths_are_decided_once() -> None:
    link, context = Pruning(0.5, scope="global", round_to=1, reselect_every=1), Context()
    tensors = some_tensors(FLAT, 13)
    for tower in ("hidden", "value_hidden"):
        tensors[f"{tower}.1.weight"][:7] *= 0.01
        tensors[f"{tower}.1.bias"][:7] *= 0.01
    first = compress(link, FLAT, tensors, context)
    # 10 of 21 go: the 7 small ones of hidden.1, and 3 more
    widths = first.graph.architecture.hidden
    assert sum(widths) == 11 and widths[1] <= 2
    later = compress(link, FLAT, some_tensors(FLAT, 14), context)
    assert later.graph == first.graph
    fixed = {
        layer: dict.fromkeys(units, 0.0)
        for layer, units in least_important(
            FLAT, later.graph.architecture, some_tensors(FLAT, 14)
        ).items()
    }
    observations = some_observations(FLAT, 4)
    logits, values, _ = slow_forward(FLAT, some_tensors(FLAT, 14), observations, fixed)
    answers = graph_outputs(later, observations)
    np.testing.assert_allclose(answers[0], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answers[1], values, rtol=1e-4, atol=1e-5)


def test_a_layer_with_its_own_share_is_not_in_the_ranking() -> None:
    link = Pruning(0.5, scope="global", per_layer={"hidden.1": 0.3}, round_to=1)
    result = compress(link, FLAT, some_tensors(FLAT, 15), Context())
    assert result.graph.architecture.hidden == (6, 7)  # 2 of 9; 6 of 12, ranked alone


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("importance", ["magnitude", "activation"])
@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e30])
def test_weights_that_are_all_equal_keep_the_first_units(value, importance, scope) -> None:
    tensors = {
        name: np.full(shape, value, np.float32) for name, shape in IMAGES.tensor_shapes().items()
    }
    link = Pruning(0.5, importance=importance, scope=scope, round_to=1, compensate=False)
    # dark images: 1e30 times a bright one would leave float32
    context = Context(np.zeros((4, *IMAGES.observation_shape), np.uint8))
    if value == 1e30:
        tensors = {n: t if n.startswith("convolutions.0") else t * 0 for n, t in tensors.items()}
    result = compress(link, IMAGES, tensors, context)
    assert all(np.isfinite(tensor).all() for tensor in result.tensors.values())
    assert all(width >= 1 for width in widths_of(result.graph.architecture))


def test_of_equal_units_the_first_stay() -> None:
    scores = np.random.default_rng(2).integers(0, 3, 200).astype(np.float64)
    by_hand = sorted(range(200), key=lambda unit: (-scores[unit], unit))[:100]
    np.testing.assert_array_equal(most_important(scores, 100), sorted(by_hand))


def test_dead_channels_go_first() -> None:
    tensors = some_tensors(IMAGES, 16)
    dead = [0, 2, 5]
    tensors["convolutions.0.weight"][dead] = 0.0
    tensors["convolutions.0.bias"][dead] = 0.0
    result = compress(Pruning(0.5, round_to=1), IMAGES, tensors, Context())
    np.testing.assert_array_equal(
        result.tensors["convolutions.0.weight"], tensors["convolutions.0.weight"][[1, 3, 4]]
    )


@pytest.mark.parametrize(
    "sparsity", [0, 0.0, 1, 1.0, 1.5, -0.1, float("nan"), float("inf"), True, "0.5", None]
)
def test_a_share_that_removes_nothing_or_everything_is_refused(sparsity) -> None:
    with pytest.raises(ChainError, match="prune: sparsity: expected the share of units to remove"):
        Pruning(sparsity)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"importance": "taylor"}, "importance 'taylor' is unknown; expected one of magnitude"),
        ({"scope": "all"}, "scope 'all' is unknown; expected one of layer, global"),
        ({"round_to": 0}, "round_to: expected an integer of 1 or more, got 0"),
        ({"reselect_every": 1.5}, "reselect_every: expected an integer"),
        ({"measure_every": True}, "measure_every: expected an integer"),
        ({"observations": -1}, "observations: expected an integer"),
        ({"per_layer": {"hidden.0": 1.0}}, r"per_layer\['hidden.0'\]: expected the share"),
        ({"per_layer": {"hidden.0": float("nan")}}, r"per_layer\['hidden.0'\]"),
        ({"per_layer": 0.5}, "per_layer: expected 'layer: sparsity', got 0.5"),
    ],
)
def test_wrong_settings_are_refused(settings_, message) -> None:
    with pytest.raises(ChainError, match=message):
        Pruning(0.5, **settings_)


@pytest.mark.parametrize(
    ("graph", "settings_", "message"),
    [
        (PolicyGraph(IMAGES, ranks=(("hidden.0", 2),)), {}, "hidden.0; put low_rank after prune"),
        (PolicyGraph(IMAGES, precision="fp16"), {}, "after the quantisation to fp16"),
        (PolicyGraph(IMAGES, runtime="onnx", static=True), {}, "comes after onnx"),
        (PolicyGraph(replace(FLAT, hidden=())), {}, "neither convolutions nor hidden layers"),
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


@pytest.mark.parametrize(
    "link",
    [
        Pruning(0.5),
        Pruning(0.9, scope="global"),
        Pruning(0.3, importance="activation", per_layer={"hidden.0": 0.7}),
        Pruning(0.5, compensate=False, reselect_every=1),
    ],
    ids=lambda link: link.id,
)
def test_the_link_keeps_the_contract(link) -> None:
    check_compressor(link)
    check_compressor(link, FLAT)


def test_the_order_of_fuse_and_prune_makes_no_difference() -> None:
    tensors, visited = some_tensors(IMAGES, 17), some_observations(IMAGES, 20)
    # beside weights that were divided by 255 the biases would decide, and the other way round
    sizes = np.arange(6.0, 0.0, -1.0)
    tensors["convolutions.0.weight"] *= sizes[:, None, None, None].astype(np.float32)
    tensors["convolutions.0.bias"][:] = 0.1 / sizes
    results = []
    for links in ([Pruning(0.5), Fusion()], [Fusion(), Pruning(0.5)]):
        policy, context = Policy.of(IMAGES, tensors), Context(visited)
        context.begin(policy)
        for link in links:
            policy = link.compress(policy, context)
        results.append(policy)
    assert results[0].graph == results[1].graph
    for name, tensor in results[0].tensors.items():
        np.testing.assert_allclose(results[1].tensors[name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("links", [["onnx"], ["fuse", "onnx"], [], ["torchscript"]])
def test_actors_see_the_new_weights_after_every_version(links) -> None:
    chain = parse_chain([{"prune": {"sparsity": 0.5, "compensate": False}}, *links])
    assert chain.id == ">".join(["prune=0.5", *links])
    actor, context = ArtifactPolicy(IMAGES), Context(some_observations(IMAGES, 20))
    observations = some_observations(IMAGES, 5, seed=40)
    answers, chosen = [], some_tensors(IMAGES, 1)
    for version in (1, 2, 3):
        tensors = some_tensors(IMAGES, version)
        artifact = chain.compress(Policy.of(IMAGES, tensors, PolicyVersion(0, version)), context)
        assert artifact.graph == chain.plan(IMAGES)
        actor.swap(artifact)
        removed = least_important(IMAGES, artifact.graph.architecture, chosen)
        fixed = {layer: dict.fromkeys(units, 0.0) for layer, units in removed.items()}
        logits, _, _ = slow_forward(IMAGES, tensors, observations, fixed)
        answers.append(actor.logits(observations))
        np.testing.assert_allclose(answers[-1], logits, rtol=1e-3, atol=1e-4)
    assert min(np.abs(answers[i] - answers[i - 1]).max() for i in (1, 2)) > 0.05


def test_a_chain_prunes_then_factors_and_quantises() -> None:
    visited = some_observations(IMAGES, 40)
    chain = parse_chain([{"prune": 0.3}, {"low_rank": 2}, "fuse", "int8", "onnx"])
    tensors = some_tensors(IMAGES, 18)
    artifact = chain.compress(Policy.of(IMAGES, tensors), Context(visited))
    actor = ArtifactPolicy(IMAGES)
    actor.swap(artifact)
    float_chain = CompressorChain().add(Pruning(0.3)).add(LowRank(2)).add(ONNX())
    exact = float_chain.compress(Policy.of(IMAGES, tensors), Context(visited))
    reference = ArtifactPolicy(IMAGES)
    reference.swap(exact)
    expected = reference.logits(visited)
    error = np.abs(actor.logits(visited) - expected).max()
    assert 0.0 < error < 0.1 * np.abs(expected).max()


def test_twice_a_half_is_a_quarter() -> None:
    architecture = replace(FLAT, hidden=(16, 8))
    chain = CompressorChain().add(Pruning(0.5)).add(Pruning(0.5)).add(ONNX())
    artifact = chain.compress(Policy.of(architecture, some_tensors(architecture, 19)), Context())
    assert artifact.graph.architecture.hidden == (4, 2)
