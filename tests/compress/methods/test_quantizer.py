"""The link that quantises: rounding, ranges, times of calibration, and errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aclearn.policies import build_architecture
from aclearn.types import ActionSpec, ObservationSpec, PolicyVersion
from aclearn.types.action_spec import ActionPart
from compress import (
    ONNX,
    ChainError,
    CompressorChain,
    Context,
    NeedsObservations,
    Policy,
    PolicyGraph,
    Pruning,
    RefusedTensors,
    check_tensors,
)
from compress.methods.quantizer import (
    Quantizer,
    activation_ranges,
    activation_scale,
    has_vnni,
    quantise_weight,
)
from tests.support.acting import parameters_of
from tests.support.architectures import altered
from tests.support.contexts import context_of, seen
from tests.support.integer_policies import integer_parameters
from tests.support.layer_walk import outputs
from tests.support.random_policies import apply, in_onnx, reference_parameters


@pytest.mark.parametrize(("reduced_range", "most"), [(False, 127), (True, 63)])
@pytest.mark.parametrize("per_channel", [False, True])
def test_weights_are_rounded_to_the_nearest_of_their_steps(
    small, architecture, per_channel, reduced_range, most
) -> None:
    link = Quantizer(per_channel=per_channel, reduced_range=reduced_range)
    policy = small.policy(architecture)
    result = apply(link, policy, context_of(small.observations(architecture, 8)))
    for layer in policy.graph.products():
        weight = policy.tensors[f"{layer.name}.weight"].astype(np.float64)
        scale = result.tensors[f"{layer.name}.weight_scale"].astype(np.float64)
        integers = result.tensors[f"{layer.name}.weight"].astype(np.int64)
        rows = weight.reshape(len(weight), -1)
        largest = np.abs(rows).max(axis=1) if per_channel else np.abs(rows).max()
        np.testing.assert_allclose(scale, largest / most, rtol=1e-6)
        column = scale.reshape(-1, *(1,) * (weight.ndim - 1)) if per_channel else scale
        assert (np.abs(weight - column * integers) <= column * (0.5 + 1e-5)).all()
        assert np.abs(integers).max() == most
        bias = policy.tensors[f"{layer.name}.bias"].astype(np.float64)
        unit = float(result.tensors[f"{layer.name}.input_scale"]) * scale
        error = np.abs(bias - unit * result.tensors[f"{layer.name}.bias"])
        assert (error <= unit * (0.5 + 1e-5)).all()


def test_a_half_is_rounded_to_even_in_tensors_of_any_width() -> None:
    rng = np.random.default_rng(0)
    for shape in ((3, 20_000), (9000, 2), (4, 3, 5, 5), (2, 0)):
        halves = rng.integers(-254, 255, shape)
        weight = (halves / 2).astype(np.float32)
        per_row = np.linspace(1, 2, len(weight), dtype=np.float32)
        expected = [[round(h / 2) for h in row] for row in halves.reshape(len(weight), -1).tolist()]
        np.testing.assert_array_equal(
            quantise_weight(weight, np.array(1.0, np.float32)).reshape(len(weight), -1), expected
        )
        scaled = weight * per_row.reshape(-1, *(1,) * (weight.ndim - 1))
        result = quantise_weight(scaled, per_row)
        # the product rounds: a former half may now lie on either side
        assert np.abs(result.reshape(len(weight), -1) - np.array(expected)).max(initial=0) <= 1
        assert result.dtype == np.int8 and result.shape == shape


@pytest.mark.parametrize(
    ("values", "scale", "zero"),
    [
        ((0.0, 255.0), 1.0, 0),
        ((-1.0, 3.0), 4 / 255, 64),  # 63.75
        ((-51.0, 204.0), 1.0, 51),
        ((-10.0, -5.0), 10 / 255, 255),  # 0 has to be in it
        ((3.0, 6.0), 6 / 255, 0),
        ((4.0, 4.0), 4 / 255, 0),  # a constant is represented by the end of its scale
        ((-4.0, -4.0), 4 / 255, 255),
        ((0.0, 0.0), 1.0, 0),
        ((0.0, 1e-45), 1.0, 0),  # so small that its scale would be 0
    ],
)
def test_activation_scales_reach_over_the_range_and_zero(values, scale, zero) -> None:
    result = activation_scale(values)
    assert result == (pytest.approx(scale, rel=1e-6), zero)
    assert result[0].dtype == np.float32


def test_ranges_are_those_of_what_enters_each_layer(small, architecture) -> None:
    policy = small.policy(architecture)
    observations = small.observations(architecture, 9)
    ranges = activation_ranges(policy, seen(observations), Quantizer().plan(policy.graph))
    _, _, given = outputs(policy.graph, policy.tensors, observations)
    for layer in policy.graph.products():
        entering, leaving = given[layer.reads[0]], given[layer.name]
        found = ranges.pop(layer.name)
        np.testing.assert_allclose(found, (entering.min(), entering.max()), rtol=1e-5, atol=1e-6)
        if layer.name.endswith(("sections.0.convolution", "sections.1.convolution", "second")):
            found = ranges.pop(f"{layer.name}.output")
            np.testing.assert_allclose(found, (leaving.min(), leaving.max()), rtol=1e-5, atol=1e-6)
    assert not ranges


def test_images_enter_as_they_are(small) -> None:
    for folded, scale in ((False, 1 / 255), (True, 1.0)):
        policy = small.policy(small.images)
        policy = policy.become(replace(policy.graph, scale_folded=folded), policy.tensors)
        # dim images: a calibrated scale would be smaller
        result = apply(Quantizer(), policy, context_of(small.observations(small.images, 8) // 4))
        assert result.tensors["convolutions.0.input_scale"] == np.float32(scale)
        assert result.tensors["convolutions.0.input_zero"] == 0


_EVERY_WEIGHT = [
    f"{layer}.weight" for layer in ("convolutions.0", "convolutions.1", "hidden.0", "hidden.1")
]
_SUBNORMAL = np.random.default_rng(0).integers(-190, 191, (8, 16)) * np.float32(1.4e-45)
_SPOILT = {
    "nothing": {},
    "dead filter": {"convolutions.0.weight": lambda w: (w.T * [1, 1, 0, 1, 1]).T},
    "dead convolution": {"convolutions.1.weight": 0},
    # after the ReLU the next layer sees nothing but 0
    "dead units everywhere": {"hidden.0.weight": 0, "hidden.0.bias": -1},
    "constant weights": {
        "convolutions.1.weight": 0.05, "hidden.0.weight": -0.02, "hidden.0.bias": 0.3
    },
    # what enters the next layer never changes
    "constant activations": {"hidden.0.weight": 0, "hidden.0.bias": 0.7},
    "different constant activations": {
        "convolutions.0.weight": 0, "convolutions.0.bias": np.linspace(0.1, 0.9, 5)
    },
    "dead head": {"policy.weight": 0},
    "nearly dead filter": {
        "convolutions.1.weight": lambda w: (w.T * np.where(np.arange(6) == 3, 1e-12, 1)).T
    },
    "nearly dead layer": {"hidden.0.weight": lambda w: w * 1e-12},
    # their largest over 127 is no number that float32 divides by without loss
    "subnormal layer": {"hidden.1.weight": _SUBNORMAL},
    "small biases of a dead layer": {
        "hidden.1.weight": 0,
        "hidden.1.bias": lambda b: b * 1e-3,
        "policy.weight": lambda w: w * 1e3,
    },
    "zeros": dict.fromkeys(_EVERY_WEIGHT, 0),
}  # fmt: skip


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("spoilt", _SPOILT)
def test_dead_nearly_dead_and_constant_layers_keep_what_they_give(
    small, spoilt, per_channel
) -> None:
    tensors = small.tensors(small.images, 5)
    for name, made in _SPOILT[spoilt].items():
        tensors[name][...] = made(tensors[name]) if callable(made) else made
    policy = Policy.of(small.images, tensors)
    observations = small.observations(small.images, 32)
    link = Quantizer(per_channel=per_channel, reduced_range=not has_vnni())
    result = apply(link, policy, context_of(observations))
    check_tensors(result.graph, result.tensors)
    logits = parameters_of(in_onnx(result), observations)
    expected = reference_parameters(small.images, tensors, observations)
    assert np.abs(logits - expected).max() <= 0.06 * np.abs(expected).max()
    # no sum leaves the range of an int32
    integer_parameters(result.graph, result.tensors, observations)


def test_calibrations_are_frequent_at_first_and_again_in_a_new_generation(small) -> None:
    context = context_of(small.observations(small.flat, 256))
    policy = small.policy(small.flat)
    versions = [replace(policy, at=PolicyVersion(0, v)) for v in range(1, 61)]
    resumed = [replace(policy, at=PolicyVersion(1, v)) for v in range(1, 7)]
    link, counts, scales = Quantizer(calibrate_every=20), [0], [None]
    for each in (*versions, *resumed):
        result = apply(link, each, context)
        assert result.at == each.at
        counts.append(context.memory(link.state_key)["calibrations"])
        scales.append(float(result.tensors["policy.input_scale"]))
    changes = [i for i in range(1, len(counts)) if counts[i] > counts[i - 1]]
    assert changes == [1, 2, 4, 8, 16, 32, 52, 61, 62, 64]
    # in between they are quantised with the known ranges
    assert [i for i in range(1, len(scales)) if scales[i] != scales[i - 1]] == changes


def test_what_no_longer_continues_is_calibrated_and_chosen_at_once(small) -> None:
    context, policy = context_of(small.observations(small.images, 16)), small.policy(small.images)
    prune, link = Pruning(0.5, reselect_every=1000), Quantizer(calibrate_every=1000)
    counts, ages = [], []
    for version in range(1, 14):
        context.restarts += version == 11  # a new student, or versions that the chain missed
        apply(link, apply(prune, policy, context), context)
        counts.append(context.memory(link.state_key)["calibrations"])
        ages.append(context.memory(prune.state_key)["choice"].age)
    assert counts == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 6, 6]
    assert ages == [*range(1, 11), 1, 2, 3]


def test_other_units_after_pruning_are_calibrated_at_once(small) -> None:
    chain = CompressorChain(batch_sizes=(), fidelity_observations=0)
    chain.add(Pruning(0.5, reselect_every=10)).add(Quantizer(calibrate_every=1000)).add(ONNX())
    context = context_of(small.observations(small.images, 16))
    *_, quantizer, _ = chain.links
    counts = []
    for version in range(1, 31):
        # other weights from version 15 on: the choice of version 21 is another one, that of 11 not
        policy = small.policy(small.images, seed=1 if version < 15 else 2, version=version)
        chain.compress(policy, context)
        counts.append(context.memory(quantizer.state_key)["calibrations"])
    assert context.breaks == 1
    # at 1, 2, 4, 8, 16; then 21, 22, 24 and 28
    assert [counts[v - 1] for v in (1, 2, 4, 8, 16, 20, 21, 22, 24, 28, 30)] == [
        1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 9,
    ]  # fmt: skip


def test_another_graph_is_calibrated_at_once(small) -> None:
    context = context_of(small.observations(small.images, 16))
    link = Quantizer(calibrate_every=100)
    narrow = small.policy(altered(small.images, hidden=(7, 5)))
    apply(link, small.policy(small.images), context)
    result = apply(link, narrow, context)
    assert context.memory(link.state_key)["calibrations"] == 2
    alone = apply(Quantizer(), narrow, Context(context.visited))
    for name in (name for name in alone.tensors if name.endswith("input_scale")):
        np.testing.assert_allclose(result.tensors[name], alone.tensors[name])


def test_int8_needs_observations_and_halves_do_not(small) -> None:
    policy = small.policy(small.flat)
    with pytest.raises(NeedsObservations, match=r"^int8(-7bit)? needs observations"):
        apply(Quantizer(), policy, Context())
    assert Quantizer().needs_observations
    for precision in ("FP16", "BF16"):
        link = Quantizer(precision)
        assert not link.needs_observations
        apply(link, policy, Context())


@pytest.mark.parametrize("precision", ["int8", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("convolutions.1.weight", np.nan),
        ("hidden.0.bias", np.inf),
        ("policy.bias", -np.inf),
        ("convolutions.0.weight", 3e38),  # finite, and what it gives is not
    ],
)
def test_numbers_that_are_not_finite_are_not_hidden_by_rounding(
    small, precision, name, number
) -> None:
    # an earlier link may have made them; the weights that enter a chain are checked there
    link, context = Quantizer(precision), context_of(small.observations(small.images, 8))
    policy = small.policy(small.images)
    policy.tensors[name][...] = number
    if precision == "int8" or not np.isfinite(number):
        with pytest.raises(RefusedTensors, match="not finite"):
            result = apply(link, policy, context)
            check_tensors(result.graph, result.tensors)  # the chain does this after all links
    # and the failed version leaves no trace
    result = apply(link, small.policy(small.images), context)
    check_tensors(result.graph, result.tensors)


def _mlp(hidden: tuple[int, ...], *, box: bool = False, pixels: bool = False) -> PolicyGraph:
    observation = ObservationSpec.plain((3,), "float32")
    if pixels:
        observation = ObservationSpec.plain((1, 4, 4), "uint8")
    box_part = ActionPart(("box",), (1,), "float32", low=(-1.0,), high=(1.0,))
    actions = ActionSpec.of((box_part,)) if box else 3
    return PolicyGraph(build_architecture("mlp", observation, actions, (), hidden, "tanh"))


@pytest.mark.parametrize(
    ("settings", "graph", "kept"),
    [
        ({}, _mlp((8, 8)), ()),
        ({}, _mlp((8, 8), box=True), ("hidden.0", "policy_mean")),
        ({}, _mlp((8, 8), box=True, pixels=True), ("policy_mean",)),  # pixels are exact
        ({}, _mlp((8,), box=True), ("hidden.0",)),  # one product is left to int8
        ({}, _mlp((), box=True), ()),
        ({"keep_last": 1}, _mlp((8, 8)), ("policy",)),
        ({"keep_last": 2}, _mlp((8, 8)), ("hidden.1", "policy")),
        ({"keep_first": 1}, _mlp((8, 8)), ("hidden.0",)),
        ({"keep_first": 0, "keep_last": 0}, _mlp((8, 8), box=True), ()),
    ],
)
def test_first_and_last_products_stay_in_fp32_where_actions_are_numbers(
    settings, graph, kept
) -> None:
    planned = Quantizer(**settings).plan(graph)
    assert planned.kept == kept
    dtypes = {name: spec.dtype for name, spec in planned.tensors().items()}
    for layer in planned.products():
        expected = "float32" if layer.name in kept else "int8"
        assert dtypes[f"{layer.name}.weight"] == expected
        assert (f"{layer.name}.input_scale" in dtypes) == (layer.name not in kept)


def test_settings_that_leave_nothing_to_int8_are_refused() -> None:
    with pytest.raises(ChainError, match="keep_last leave none of 3 products to int8"):
        Quantizer(keep_last=3).plan(_mlp((8, 8)))


def test_the_kept_products_are_in_the_id() -> None:
    assert Quantizer(keep_first=0, keep_last=2).id.startswith("int8-first0-last2")
    assert Quantizer("fp16", keep_last=2).id == "fp16"
