"""The ONNX graph of a policy, built by hand and without weights.

Weights change every few seconds, the graph does not: it is built once and each policy version
brings its tensors as external initialisers, which takes milliseconds where an export takes
hundreds.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from compress.graph import Layer, PolicyGraph, TensorSpec

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


def build_onnx(graph: PolicyGraph) -> bytes:
    """A serialised ONNX model `observations [N, *shape] → logits [N, A]` without its weights.

    Every tensor that `onnx_tensors` lists is an initialiser that says "external", so a session can
    only be made with all of them given. uint8 observations go in raw: an fp32 graph casts and
    scales them itself, an int8 graph computes with them as they are. The value head is left out,
    since who acts does not need it.
    """
    nodes = _int8_nodes(graph) if graph.precision == "int8" else _float_nodes(graph)
    initialisers = [_external(name, spec) for name, spec in onnx_tensors(graph).items()]
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
        helper.make_graph(nodes, architecture.name, [observations], [logits], initialisers),
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
    flat = False
    layers = graph.layers()
    for layer in layers:
        if not layer.is_convolution and not flat:
            nodes.append(helper.make_node("Flatten", [current], ["flat"], axis=1))
            current, flat = "flat", True
        target = "logits" if layer is layers[-1] else layer.name
        inputs = [current, f"{layer.name}.weight", *([f"{layer.name}.bias"] if layer.bias else [])]
        nodes.append(_product(layer, inputs, target))
        current = target
        if layer.activation is not None:
            active = f"{layer.name}.active"
            nodes.append(helper.make_node(_ACTIVATIONS[layer.activation], [current], [active]))
            current = active
    return nodes


def _product(layer: Layer, inputs: list[str], target: str) -> onnx.NodeProto:
    if not layer.is_convolution:
        return helper.make_node("Gemm", inputs, [target], transB=1)
    kernel = layer.weight[2]
    return helper.make_node(
        "Conv",
        inputs,
        [target],
        strides=[layer.stride, layer.stride],
        kernel_shape=[kernel, kernel],
    )


def _int8_nodes(graph: PolicyGraph) -> list[onnx.NodeProto]:
    """Quantised from the observations to the last product; relu is the clamp at zero.

    The output of a layer is quantised with the next layer's input scale. tanh and the logits are
    computed in float.
    """
    nodes: list[onnx.NodeProto] = []
    layers = graph.layers()
    current, flat = "observations", False
    quantised = graph.architecture.observation_dtype == "uint8"
    for i, layer in enumerate(layers):
        if not layer.is_convolution and not flat:
            nodes.append(helper.make_node("Flatten", [current], ["flat"], axis=1))
            current, flat = "flat", True
        input_scale = [f"{layer.name}.input_scale", f"{layer.name}.input_zero"]
        if not quantised:
            name = f"{layer.name}.input"
            nodes.append(helper.make_node("QuantizeLinear", [current, *input_scale], [name]))
            current = name
        weight_zero = f"{layer.name}.weight_zero" if graph.per_channel else "weight_zero"
        weight = [f"{layer.name}.weight", f"{layer.name}.weight_scale", weight_zero]
        bias = f"{layer.name}.bias" if layer.bias else ""
        last = i == len(layers) - 1
        floating = last or layer.activation == "tanh"
        output_scale = (
            []
            if floating
            else [f"{layers[i + 1].name}.input_scale", f"{layers[i + 1].name}.input_zero"]
        )
        target = "logits" if last else layer.name
        if layer.is_convolution:
            kernel = layer.weight[2]
            nodes.append(
                helper.make_node(
                    "QLinearConv",
                    [current, *input_scale, *weight, *output_scale, *([bias] if bias else [])],
                    [target],
                    strides=[layer.stride, layer.stride],
                    kernel_shape=[kernel, kernel],
                )
            )
        else:
            nodes.append(
                helper.make_node(
                    "QGemm",
                    [current, *input_scale, *weight, bias, *output_scale],
                    [target],
                    domain=_MICROSOFT,
                    transB=1,
                )
            )
        current, quantised = target, not floating
        if layer.activation == "tanh":
            active = f"{layer.name}.active"
            nodes.append(helper.make_node("Tanh", [current], [active]))
            current = active
    return nodes


def _external(name: str, spec: TensorSpec) -> onnx.TensorProto:
    tensor = TensorProto()
    tensor.name = name
    tensor.data_type = _ONNX_TYPES[spec.dtype]
    tensor.dims.extend(spec.shape)
    tensor.data_location = TensorProto.EXTERNAL
    location = tensor.external_data.add()
    location.key, location.value = "location", "given-with-the-session"
    return tensor
