"""The ONNX graph of a policy, built by hand and without weights.

Weights change every few seconds, the graph does not: it is built once and each policy version
brings its tensors as external initialisers, which takes milliseconds where an export takes
hundreds.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from compress.graphs.policy_graph import Layer, PolicyGraph, TensorSpec

_OPSET = 17
_IR_VERSION = 9
#: Contributed operators of ONNX Runtime; QGemm is there since its first release with int8.
_MICROSOFT = "com.microsoft"
_ONNX_TYPES = {
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
    "float32": TensorProto.FLOAT,
}
_ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh"}


def build_onnx(graph: PolicyGraph, *, tensors_as_inputs: bool = False) -> bytes:
    """A serialised ONNX model `observations [N, *shape] → logits [N, A]` without its weights.

    Every tensor that `onnx_tensors` lists is an initialiser that says "external", so a session can
    only be made with all of them given; or, with `tensors_as_inputs`, an input of each call.

    uint8 observations go in raw: an fp32 graph casts and scales them itself, an int8 graph computes
    with them as they are. The value head is left out, since who acts does not need it.
    """
    nodes = _int8_nodes(graph) if graph.precision == "int8" else _float_nodes(graph)
    initialisers, inputs = [], []
    for name, spec in onnx_tensors(graph).items():
        if tensors_as_inputs:
            kind = _ONNX_TYPES[spec.dtype]
            inputs.append(helper.make_tensor_value_info(name, kind, spec.shape))
        else:
            initialisers.append(_external(name, spec))
    if graph.precision == "int8":
        zeros = {f"{layer.name}.": layer.weight[:1] for layer in graph.layers()}
        for prefix, shape in (zeros if graph.per_channel else {"": ()}).items():
            values = [0] * (shape[0] if shape else 1)
            initialisers.append(
                helper.make_tensor(f"{prefix}weight_zero", TensorProto.INT8, shape, values)
            )
    elif graph.input_scale != 1.0:
        scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [graph.input_scale])
        initialisers.append(scale)
    architecture = graph.architecture
    observations = helper.make_tensor_value_info(
        "observations",
        _ONNX_TYPES[architecture.observation_dtype],
        ["N", *architecture.observation_shape],
    )
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", architecture.actions])
    model = helper.make_model(
        helper.make_graph(
            nodes, architecture.name, [observations, *inputs], [logits], initialisers
        ),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)],
        ir_version=_IR_VERSION,
    )
    serialised: bytes = model.SerializeToString()
    return serialised


def onnx_tensors(graph: PolicyGraph) -> dict[str, TensorSpec]:
    """The tensors that a session of `build_onnx(graph)` wants.

    ONNX Runtime computes fp16 and bf16 on a CPU in fp32 anyhow, so they are widened before.
    """
    specs = graph.tensors()
    if graph.precision == "int8":
        return specs
    return {name: TensorSpec(spec.shape, "float32") for name, spec in specs.items()}


def _float_nodes(graph: PolicyGraph) -> list[onnx.NodeProto]:
    nodes: list[onnx.NodeProto] = []
    current = "observations"
    if graph.architecture.observation_dtype == "uint8":
        nodes.append(helper.make_node("Cast", [current], ["as_float"], to=TensorProto.FLOAT))
        current = "as_float"
    if graph.input_scale != 1.0:
        nodes.append(helper.make_node("Mul", [current, "scale"], ["scaled"]))
        current = "scaled"
    kept, flat = current, False
    layers = graph.layers()
    for layer in layers:
        if not layer.is_convolution and not flat:
            nodes.append(helper.make_node("Flatten", [current], ["flat"], axis=1))
            current, flat = "flat", True
        if layer.input_activation is not None:
            kept, current = current, f"{layer.name}.input"
            nodes.append(helper.make_node(_ACTIVATIONS[layer.input_activation], [kept], [current]))
        target = "logits" if layer is layers[-1] else layer.name
        inputs = [current, f"{layer.name}.weight", *([f"{layer.name}.bias"] if layer.bias else [])]
        nodes.append(_product(layer, inputs, target))
        current = target
        if layer.pooled:
            current = f"{layer.name}.pooled"
            nodes.append(_pool(target, current))
        current = _sum_and_activation(nodes, layer, current, kept)
    return nodes


def _product(layer: Layer, inputs: list[str], target: str) -> onnx.NodeProto:
    if not layer.is_convolution:
        return helper.make_node("Gemm", inputs, [target], transB=1)
    return helper.make_node("Conv", inputs, [target], **_geometry(layer))


def _geometry(layer: Layer) -> dict[str, list[int]]:
    return {
        "strides": [layer.stride] * 2,
        "kernel_shape": list(layer.weight[2:]),
        "pads": [layer.padding] * 4,
    }


def _pool(source: str, target: str) -> onnx.NodeProto:
    return helper.make_node(
        "MaxPool", [source], [target], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
    )


def _sum_and_activation(nodes: list[onnx.NodeProto], layer: Layer, current: str, kept: str) -> str:
    """What follows a layer in float; returns the name of the result."""
    if layer.closes_block:
        nodes.append(helper.make_node("Add", [current, kept], [f"{layer.name}.sum"]))
        current = f"{layer.name}.sum"
    if layer.activation is not None:
        active = f"{layer.name}.active"
        nodes.append(helper.make_node(_ACTIVATIONS[layer.activation], [current], [active]))
        current = active
    return current


def _int8_nodes(graph: PolicyGraph) -> list[onnx.NodeProto]:
    """Quantised from the observations to the last product; relu is the clamp at zero.

    The output of a layer is quantised with the next layer's input scale. tanh and the logits are
    computed in float, and so are the sums of residual blocks: what enters them is quantised with a
    scale of its layer's own.
    """
    nodes: list[onnx.NodeProto] = []
    layers = graph.layers()
    current, kept, flat = "observations", "observations", False
    quantised = graph.architecture.observation_dtype == "uint8"
    for i, layer in enumerate(layers):
        if not layer.is_convolution and not flat:
            nodes.append(helper.make_node("Flatten", [current], ["flat"], axis=1))
            current, flat = "flat", True
        if layer.input_activation is not None:
            kept, current = current, f"{layer.name}.activated"
            nodes.append(helper.make_node(_ACTIVATIONS[layer.input_activation], [kept], [current]))
        if not quantised:
            name = f"{layer.name}.input"
            inputs = [current, *_scale(layer, "input")]
            nodes.append(helper.make_node("QuantizeLinear", inputs, [name]))
            current = name
        last = i == len(layers) - 1
        target = "logits" if last else layer.name
        if layer.has_output_scale:
            nodes.append(_int8_product(graph, layer, current, target, _scale(layer, "output")))
            current, quantised = _dequantised(nodes, layer, target), False
            current = _sum_and_activation(nodes, layer, current, kept)
            continue
        quantised = not last and layer.activation != "tanh"
        output = _scale(layers[i + 1], "input") if quantised else []
        nodes.append(_int8_product(graph, layer, current, target, output))
        current = target
        if layer.activation == "tanh":
            current = _sum_and_activation(nodes, layer, current, kept)
    return nodes


def _int8_product(
    graph: PolicyGraph, layer: Layer, current: str, target: str, output: list[str]
) -> onnx.NodeProto:
    """A product of quantised numbers; with an `output` scale and zero point it gives such too."""
    weight_zero = f"{layer.name}.weight_zero" if graph.per_channel else "weight_zero"
    weight = [f"{layer.name}.weight", f"{layer.name}.weight_scale", weight_zero]
    bias = f"{layer.name}.bias" if layer.bias else ""
    inputs = [current, *_scale(layer, "input"), *weight]
    if layer.is_convolution:
        inputs += [*output, *([bias] if bias else [])]
        return helper.make_node("QLinearConv", inputs, [target], **_geometry(layer))
    inputs += [bias, *output]
    return helper.make_node("QGemm", inputs, [target], domain=_MICROSOFT, transB=1)


def _scale(layer: Layer, of: str) -> list[str]:
    return [f"{layer.name}.{of}_scale", f"{layer.name}.{of}_zero"]


def _dequantised(nodes: list[onnx.NodeProto], layer: Layer, current: str) -> str:
    """The output of a layer with a scale of its own as floats, pooled before where it is pooled."""
    if layer.pooled:
        pooled = f"{layer.name}.pooled"
        nodes.append(_pool(current, pooled))
        current = pooled
    inputs, result = [current, *_scale(layer, "output")], f"{layer.name}.as_float"
    nodes.append(helper.make_node("DequantizeLinear", inputs, [result]))
    return result


def _external(name: str, spec: TensorSpec) -> onnx.TensorProto:
    tensor = TensorProto()
    tensor.name = name
    tensor.data_type = _ONNX_TYPES[spec.dtype]
    tensor.dims.extend(spec.shape)
    mark_external(tensor)
    return tensor


def mark_external(tensor: onnx.TensorProto) -> None:
    """Take the numbers of an initialiser out: they are given with the session."""
    for numbers in ("raw_data", "float_data", "int32_data"):
        tensor.ClearField(numbers)
    tensor.data_location = TensorProto.EXTERNAL
    location = tensor.external_data.add()
    location.key, location.value = "location", "given-with-the-session"
