"""Policy graphs: the tensors of each, and invalid ones."""

from __future__ import annotations

import json
import warnings
from dataclasses import fields, replace
from math import prod

import numpy as np
import pytest
import torch

from aclearn.policies.network import PolicyNetwork
from compress import PolicyGraph, RefusedTensors, check_tensors
from compress.graphs.graph_network import GraphNetwork
from compress.graphs.policy_graph import stored_as_float32
from tests.support.architectures import altered
from tests.support.runtimes import preset


def zeros(graph, *, with_value=False):
    return {
        name: np.zeros(spec.shape, spec.dtype)
        for name, spec in graph.tensors(with_value=with_value).items()
    }


@pytest.mark.parametrize("name", ["nature", "impala-resnet", "minigrid", "mlp"])
def test_a_graph_without_links_has_exactly_the_tensors_of_its_architecture(name) -> None:
    architecture = preset(name)
    graph = PolicyGraph(architecture)
    shapes = architecture.tensor_shapes()
    specs = graph.tensors(with_value=True)
    assert {n: s.shape for n, s in specs.items()} == shapes
    assert {s.dtype for s in specs.values()} == {"float32"}
    acting = {n for n in shapes if not n.startswith("value")}
    assert set(graph.tensors()) == acting
    # and so do both modules
    parameters = {n: tuple(p.shape) for n, p in PolicyNetwork(architecture).named_parameters()}
    assert {n: tuple(p.shape) for n, p in GraphNetwork(graph).named_parameters()} == parameters


def described(layers):
    """Each layer in short: name, kind, inputs."""
    return [(layer.name, layer.kind, *layer.reads) for layer in layers]


def test_layers_come_in_order_of_execution(small) -> None:
    graph = PolicyGraph(small.images)
    assert described(graph.layers()) == [
        ("input", "scale", "observation"),
        ("convolutions.0", "convolution", "input"),
        ("convolutions.0.relu", "relu", "convolutions.0"),
        ("convolutions.1", "convolution", "convolutions.0.relu"),
        ("convolutions.1.relu", "relu", "convolutions.1"),
        ("flatten", "flatten", "convolutions.1.relu"),
        ("hidden.0", "dense", "flatten"),
        ("hidden.0.relu", "relu", "hidden.0"),
        ("hidden.1", "dense", "hidden.0.relu"),
        ("hidden.1.relu", "relu", "hidden.1"),
        ("policy", "dense", "hidden.1.relu"),
    ]
    assert graph.weight_shapes() == {
        "convolutions.0": (5, 2, 4, 4),
        "convolutions.1": (6, 5, 3, 3),
        "hidden.0": (16, 54),  # 6 filters of 3 × 3
        "hidden.1": (8, 16),
        "policy": (3, 8),
        "value": (1, 8),
    }
    flat = PolicyGraph(small.flat)
    beside = [layer for layer in flat.layers(with_value=True) if layer not in flat.layers()]
    assert described(beside) == [
        ("value_hidden.0", "dense", "flatten"),
        ("value_hidden.0.tanh", "tanh", "value_hidden.0"),
        ("value_hidden.1", "dense", "value_hidden.0.tanh"),
        ("value_hidden.1.tanh", "tanh", "value_hidden.1"),
        ("value", "dense", "value_hidden.1.tanh"),
    ]


def test_a_factored_layer_is_two_and_its_readers_read_the_second(small) -> None:
    ranks = (("policy", 1), ("sections.0.convolution", 2))
    graph = PolicyGraph(small.residual, ranks=ranks)
    layers = {layer.name: layer for layer in graph.layers(with_value=True)}
    assert described(layers.values())[1:4] == [
        ("sections.0.convolution.down", "convolution", "input"),
        ("sections.0.convolution.up", "convolution", "sections.0.convolution.down"),
        ("sections.0.max_pool", "max_pool", "sections.0.convolution.up"),
    ]
    down, up = layers["sections.0.convolution.down"], layers["sections.0.convolution.up"]
    # the padding stays in the half that reads
    assert (down.units, down.kernel, down.stride, down.padding, down.bias) == (2, 3, 1, 1, False)
    assert (up.units, up.kernel, up.stride, up.padding, up.bias) == (6, 1, 1, 0, True)
    assert layers["policy.down"].head and layers["policy.up"].head
    assert "policy.down.bias" not in graph.tensors()
    shapes = graph.weight_shapes()
    assert (shapes["policy.down"], shapes["policy.up"]) == ((1, 8), (3, 1))


@pytest.mark.parametrize("per_channel", [False, True])
def test_int8_tensors_bring_their_scales(small, per_channel) -> None:
    graph = PolicyGraph(small.images, precision="int8", per_channel=per_channel)
    specs = graph.tensors()
    assert len(specs) == 5 * 5
    of_hidden = {n.removeprefix("hidden.0."): s for n, s in specs.items() if "hidden.0." in n}
    assert of_hidden == {
        "weight": ((16, 54), "int8"),
        "weight_scale": ((16,) if per_channel else (), "float32"),
        "input_scale": ((), "float32"),
        "input_zero": ((), "uint8"),
        "bias": ((16,), "int32"),
    }
    with pytest.raises(ValueError, match="int8 computes in ONNX Runtime only"):
        GraphNetwork(graph)


def test_int8_brings_scales_for_what_is_pooled_or_summed_up(small) -> None:
    specs = PolicyGraph(small.residual, precision="int8").tensors()
    own = {name.removesuffix(".output_scale") for name in specs if name.endswith("output_scale")}
    sections, blocks = {"sections.0", "sections.1"}, {"0.blocks.0", "0.blocks.1", "1.blocks.0"}
    assert own == {f"{s}.convolution" for s in sections} | {f"sections.{b}.second" for b in blocks}
    for name in own:
        assert specs[f"{name}.output_scale"] == ((), "float32")
        assert specs[f"{name}.output_zero"] == ((), "uint8")


EVERYTHING = {
    "ranks": (("hidden.0", 3),),
    "scale_folded": True,
    "precision": "int8",
    "per_channel": True,
    "kept": ("policy",),
    "reduced_range": True,
    "runtime": "onnx",
    "own_state": True,
    "static": True,
}


def test_a_graph_survives_the_way_through_json(architecture) -> None:
    for graph in (PolicyGraph(architecture), PolicyGraph(architecture, **EVERYTHING)):
        again = PolicyGraph.from_dict(json.loads(json.dumps(graph.to_dict())))
        assert again == graph
        assert hash(again) == hash(graph)  # tuples, not lists
        assert again.digest() == graph.digest()


def test_the_digest_differs_when_anything_but_the_presets_name_does(small) -> None:
    plain = PolicyGraph(small.images)
    assert set(EVERYTHING) == {f.name for f in fields(PolicyGraph)} - {"architecture"}
    others = [replace(plain, **{name: value}) for name, value in EVERYTHING.items()]
    others.append(plain.with_architecture(altered(small.images, hidden=(16, 9))))
    digests = [graph.digest() for graph in (plain, *others)]
    assert len(set(digests)) == len(digests)
    assert all(len(d) == 16 and int(d, 16) >= 0 for d in digests)
    renamed = plain.with_architecture(replace(small.images, name="other"))
    assert renamed.digest() == plain.digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "int4"},
        {"runtime": "tflite"},
        {"architecture": {}},
        {"sparse": True},
        {"ranks": [["hidden.0"]]},
        {"ranks": [["hidden.0", "few"]]},
    ],
    ids=str,
)
def test_data_that_describes_no_graph_is_refused(small, changes) -> None:
    data = PolicyGraph(small.images).to_dict()
    with pytest.raises((ValueError, TypeError, KeyError)):
        PolicyGraph.from_dict(data | changes)
    data["architecture"]["layers"][6]["units"] = [24]
    with pytest.raises(TypeError):
        PolicyGraph.from_dict(data)


@pytest.mark.parametrize(
    "number", [np.nan, np.inf, -np.inf], ids=["nan", "infinite", "minus-infinite"]
)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_every_float_tensor_must_be_finite(small, precision, number) -> None:
    graph = PolicyGraph(small.images, precision=precision, per_channel=True)
    check_tensors(graph, zeros(graph))
    for name, spec in graph.tensors().items():
        if spec.dtype in ("int8", "int32", "uint8"):
            continue
        tensors = zeros(graph)
        value = number
        if precision == "bf16":
            value = torch.tensor([number]).bfloat16().view(torch.int16).numpy().view(np.uint16)[0]
        tensors[name].reshape(-1)[-1:] = value
        with pytest.raises(RefusedTensors, match=rf"weights\['{name}'\]: not finite"):
            check_tensors(graph, tensors)


def test_numbers_whose_squares_are_no_float32_are_finite_and_infinite_ones_among_them_are_not(
    small,
) -> None:
    graph = PolicyGraph(small.flat)
    tensors = zeros(graph)
    weight = tensors["hidden.0.weight"]
    weight[...] = np.finfo(np.float32).max
    weight[0] *= -1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_tensors(graph, tensors)
        # neither the largest nor the smallest number alone shows it
        for place, number in {(1, 0): np.inf, (0, 0): -np.inf, (1, 1): np.nan}.items():
            before, weight[place] = weight[place], number
            with pytest.raises(RefusedTensors, match=r"weights\['hidden.0.weight'\]: not finite"):
                check_tensors(graph, tensors)
            weight[place] = before


def test_the_bits_of_bfloat16_that_are_not_finite_are_those_that_torch_says(small) -> None:
    graph = PolicyGraph(small.flat, precision="bf16")
    tensors = zeros(graph)
    everything = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    as_torch = torch.from_numpy(everything.view(np.int16)).view(torch.bfloat16).float()
    finite = torch.isfinite(as_torch).numpy()
    assert finite.sum() == 2**16 - 2**8
    # all finite ones at once, in tensors of the right shape
    weight = tensors["hidden.0.weight"]
    for chunk in np.array_split(everything[finite], 1 + finite.sum() // weight.size):
        weight[...] = 0
        weight.reshape(-1)[: len(chunk)] = chunk
        check_tensors(graph, tensors)
    for bits in everything[~finite]:
        weight[...] = 0
        weight[3, 2] = bits
        with pytest.raises(RefusedTensors):
            check_tensors(graph, tensors)
    np.testing.assert_array_equal(stored_as_float32(everything[finite]), as_torch.numpy()[finite])


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_tensors_of_another_dtype_or_shape_are_refused(small, precision) -> None:
    graph = PolicyGraph(small.images, precision=precision)
    for name, spec in graph.tensors().items():
        for wrong in (
            np.zeros(spec.shape, "float64"),
            np.zeros((*spec.shape, 1), spec.dtype),
        ):
            with pytest.raises(RefusedTensors, match=rf"weights\['{name}'\]: expected"):
                check_tensors(graph, {**zeros(graph), name: wrong})
        missing = zeros(graph)
        del missing[name]
        with pytest.raises(RefusedTensors, match="missing or unknown"):
            check_tensors(graph, missing)


def test_the_value_is_asked_for_only_where_it_is_wanted(small) -> None:
    graph = PolicyGraph(small.flat)
    for given in (False, True):
        check_tensors(graph, zeros(graph, with_value=given), with_value=given)
        with pytest.raises(RefusedTensors, match=r"value\.bias"):
            check_tensors(graph, zeros(graph, with_value=given), with_value=not given)


def test_the_sizes_that_travel_follow_from_the_precision(small) -> None:
    plain = sum(prod(s.shape) for s in PolicyGraph(small.images).tensors().values())
    sizes = {}
    for precision in ("fp32", "fp16", "bf16", "int8"):
        graph = PolicyGraph(small.images, precision=precision)
        sizes[precision] = sum(tensor.nbytes for tensor in zeros(graph).values())
    assert sizes["fp32"] == 4 * plain
    assert sizes["fp16"] == sizes["bf16"] == 2 * plain
    biases = 5 + 6 + 16 + 8 + 3
    # one byte a weight, four a bias, and 9 of scales and zero point a layer
    assert sizes["int8"] == plain - biases + 4 * biases + 5 * 9
