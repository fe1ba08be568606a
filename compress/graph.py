"""The ONNX graph of an architecture, built by hand and without weights.

Weights change every few seconds, the graph does not: it is built once and each policy version
brings its tensors as external initialisers, which takes milliseconds where an export takes
hundreds.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from aclearn.policies import Architecture

_OPSET = 17
_IR_VERSION = 9
_ONNX_TYPES = {"uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT}


def build_graph(architecture: Architecture) -> bytes:
    """A serialised ONNX model `observations [N, *shape] → logits [N, A]` without its weights.

    Every weight of the policy's side of `architecture.tensor_shapes()` is an initialiser that
    says "external", so a session can only be made with all of them given. uint8 observations go
    in raw: the graph casts and divides by 255 itself. The value head is left out, since who acts
    does not need it.
    """
    nodes: list[onnx.NodeProto] = []
    current = "observations"
    if architecture.observation_dtype == "uint8":
        nodes.append(helper.make_node("Cast", [current], ["as_float"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", ["as_float", "scale"], ["scaled"]))
        current = "scaled"
    activation = {"relu": "Relu", "tanh": "Tanh"}[architecture.activation]
    for i, conv in enumerate(architecture.convolutions):
        name = f"convolutions.{i}"
        nodes.append(
            helper.make_node(
                "Conv",
                [current, f"{name}.weight", f"{name}.bias"],
                [name],
                strides=[conv.stride, conv.stride],
                kernel_shape=[conv.kernel, conv.kernel],
            )
        )
        nodes.append(helper.make_node(activation, [name], [f"{name}.active"]))
        current = f"{name}.active"
    nodes.append(helper.make_node("Flatten", [current], ["flat"], axis=1))
    current = "flat"
    for i in range(len(architecture.hidden)):
        name = f"hidden.{i}"
        nodes.append(_linear(current, name, name))
        nodes.append(helper.make_node(activation, [name], [f"{name}.active"]))
        current = f"{name}.active"
    nodes.append(_linear(current, "policy", "logits"))

    initialisers = [
        _external(name, shape)
        for name, shape in architecture.tensor_shapes().items()
        if not name.startswith("value")
    ]
    if architecture.observation_dtype == "uint8":
        initialisers.append(helper.make_tensor("scale", TensorProto.FLOAT, [], [1.0 / 255.0]))
    observations = helper.make_tensor_value_info(
        "observations",
        _ONNX_TYPES[architecture.observation_dtype],
        ["N", *architecture.observation_shape],
    )
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", architecture.actions])
    graph = helper.make_graph(nodes, architecture.name, [observations], [logits], initialisers)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )
    serialised: bytes = model.SerializeToString()
    return serialised


def _linear(source: str, name: str, target: str) -> onnx.NodeProto:
    return helper.make_node("Gemm", [source, f"{name}.weight", f"{name}.bias"], [target], transB=1)


def _external(name: str, shape: tuple[int, ...]) -> onnx.TensorProto:
    tensor = TensorProto()
    tensor.name = name
    tensor.data_type = TensorProto.FLOAT
    tensor.dims.extend(shape)
    tensor.data_location = TensorProto.EXTERNAL
    location = tensor.external_data.add()
    location.key, location.value = "location", "given-with-the-session"
    return tensor
