"""The ONNX graph of a policy, built by hand and without weights.

The graph is built once; each policy version brings its tensors as external initialisers. That takes
milliseconds, an export hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import onnx
from onnx import TensorProto, helper

from aclearn.distributions.gaussian import LOG_STD_RANGE
from aclearn.policies import Layer
from aclearn.policies.layers import MOST_DEVIATIONS, SMALLEST, TIES, output_shapes, states
from compress.errors import ChainError
from compress.graphs.module_onnx import add_module, unused_tensors
from compress.graphs.policy_graph import PolicyGraph, TensorSpec

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


def build_onnx(graph: PolicyGraph, *, tensors_as_inputs: bool = False) -> bytes:
    """A serialised ONNX model, leaves `[N, *shape]` → `parameters [N, P]`, without its weights.

    A memory adds inputs `state_0`, `state_1`, … `[N, units]` and an output `next_state_i` for each,
    all float32. Every tensor of `onnx_tensors` is an external initialiser, which a session must be
    given; with `tensors_as_inputs` it is an input of each call.

    uint8 observations go in raw: an fp32 graph casts and scales them, an int8 graph computes with
    them directly. The value head is left out, since acting does not need it.

    Raises:
        ChainError: a layer's kind is not in `KINDS`, or a leaf has the name of a state or output.
    """
    if (reason := why_not(graph)) is not None:
        raise ChainError(f"{graph.architecture.name}: {reason}")
    nodes = Nodes(graph)
    initialisers, inputs = nodes.initialisers, []
    for name, spec in onnx_tensors(graph).items():
        if tensors_as_inputs:
            kind = _ONNX_TYPES[spec.dtype]
            inputs.append(helper.make_tensor_value_info(name, kind, spec.shape))
        else:
            initialisers.append(_external(name, spec))
    if graph.precision == "int8":
        zeros = {f"{layer.name}.": (layer.units,) for layer in graph.integer_products()}
        for prefix, shape in (zeros if graph.per_channel else {"": ()}).items():
            values = [0] * prod(shape)
            initialisers.append(
                helper.make_tensor(f"{prefix}weight_zero", TensorProto.INT8, shape, values)
            )
    architecture = graph.architecture
    observations = [
        helper.make_tensor_value_info(name, _ONNX_TYPES[leaf.dtype], ["N", *leaf.shape])
        for name, leaf in architecture.observation.items()
    ]
    parameters = _float_info("parameters", architecture.parameter_count)
    states = [_float_info(name, units) for name, units in state_inputs(graph).items()]
    later = [_float_info(f"next_{name}", units) for name, units in state_inputs(graph).items()]
    model = helper.make_model(
        helper.make_graph(
            nodes.nodes,
            architecture.name,
            [*observations, *states, *inputs],
            [parameters, *later],
            initialisers,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)],
        ir_version=_IR_VERSION,
    )
    serialised: bytes = model.SerializeToString()
    return serialised


def state_inputs(graph: PolicyGraph) -> dict[str, int]:
    """The names of the inputs for its state, with their numbers; `next_<name>` are outputs."""
    return {f"state_{i}": units for i, units in enumerate(graph.state)}


def _float_info(name: str, units: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", units])


def onnx_tensors(graph: PolicyGraph) -> dict[str, TensorSpec]:
    """The tensors of a session of `build_onnx(graph)`.

    fp16 and bf16 are widened before, since ONNX Runtime computes them in fp32 on a CPU.
    """
    specs = graph.tensors()
    if graph.precision == "int8":
        return specs
    unused = {name for layer in graph.layers() for name in unused_tensors(layer)}
    return {
        name: TensorSpec(spec.shape, "float32")
        for name, spec in specs.items()
        if name not in unused
    }


class Nodes:
    """The nodes of a graph under construction.

    Attributes:
        names: ONNX name of each layer's output.
        scales: layers whose output is quantised → its scale ("hidden.0.input").
    """

    def __init__(self, graph: PolicyGraph) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self.initialisers: list[onnx.TensorProto] = []
        self.names = {name: name for name in graph.architecture.observation}
        self.scales: dict[str, str] = {}
        layers = graph.layers()
        self.shapes = output_shapes(layers, graph.architecture.observation)
        self._renamed = {graph.output: "parameters"}
        self._parts: dict[str, list[str]] = {}
        kept = states(layers)
        self.names |= {state.name: f"state_{i}" for i, state in enumerate(kept)}
        for layer in layers:
            if layer.kind == "state":
                continue
            quantised = graph.precision == "int8" and _quantised(self, layer)
            if not quantised:
                KINDS[layer.kind](self, layer, *map(self.as_float, layer.reads))
        for i, state in enumerate(kept):
            following = self.as_float(state.next)
            self.nodes.append(helper.make_node("Identity", [following], [f"next_state_{i}"]))

    def add(self, layer: Layer, operator: str, inputs: Sequence[str], **attributes: Any) -> None:
        """Add the node of a layer's output."""
        target = self._renamed.get(layer.name, layer.name)
        self.nodes.append(helper.make_node(operator, inputs, [target], **attributes))
        self.names[layer.name] = target

    def compute(self, layer: Layer, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node within a layer; returns the name of its output."""
        name = f"{layer.name}:{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, layer: Layer, number: float) -> str:
        """Add a number; returns its name."""
        name = f"{layer.name}:number.{len(self.initialisers)}"
        self.initialisers.append(helper.make_tensor(name, TensorProto.FLOAT, [], [number]))
        return name

    def parts(self, name: str, count: int) -> list[str]:
        """The names of the equal parts, side by side, of a float output."""
        if name not in self._parts:
            self._parts[name] = [f"{name}:part.{i}" for i in range(count)]
            self.nodes.append(helper.make_node("Split", [name], self._parts[name], axis=1))
        return self._parts[name]

    def as_float(self, name: str) -> str:
        """The name of a layer's output in float."""
        if (scale := self.scales.pop(name, None)) is not None:
            inputs = [self.names[name], *_scale(scale)]
            self.names[name] = f"{name}.as_float"
            self.nodes.append(helper.make_node("DequantizeLinear", inputs, [self.names[name]]))
        return self.names[name]

    def as_steps(self, name: str, scale: str) -> str:
        """The name of a layer's output quantised by a scale."""
        if self.scales.get(name) == scale:
            return self.names[name]
        inputs, steps = [self.as_float(name), *_scale(scale)], f"{name}.as_{scale}"
        self.nodes.append(helper.make_node("QuantizeLinear", inputs, [steps]))
        return steps


def _scaling(nodes: Nodes, layer: Layer, x: str) -> None:
    if nodes.graph.architecture.observation[layer.reads[0]].dtype == "uint8":
        cast = f"{layer.name}.as_float"
        nodes.nodes.append(helper.make_node("Cast", [x], [cast], to=TensorProto.FLOAT))
        x = nodes.names[layer.name] = cast
    if layer.factor == 1.0:
        nodes.names[layer.name] = x
        return
    factor = f"{layer.name}.factor"
    tensor = helper.make_tensor(factor, TensorProto.FLOAT, [], [layer.factor])
    nodes.initialisers.append(tensor)
    nodes.add(layer, "Mul", [x, factor])


def _normalise(nodes: Nodes, layer: Layer, x: str) -> None:
    away, deviations = f"{layer.name}.away", f"{layer.name}.deviations"
    bounds = {f"{layer.name}.least": -MOST_DEVIATIONS, f"{layer.name}.most": MOST_DEVIATIONS}
    for name, bound in bounds.items():
        nodes.initialisers.append(helper.make_tensor(name, TensorProto.FLOAT, [], [bound]))
    nodes.nodes.append(helper.make_node("Sub", [x, f"{layer.name}.mean"], [away]))
    nodes.nodes.append(helper.make_node("Div", [away, f"{layer.name}.std"], [deviations]))
    nodes.add(layer, "Clip", [deviations, *bounds])


def _convolution(nodes: Nodes, layer: Layer, x: str) -> None:
    nodes.add(layer, "Conv", [x, *_weights(layer)], **_window(layer))


def _silu(nodes: Nodes, layer: Layer, x: str) -> None:
    sigmoid = f"{layer.name}.sigmoid"
    nodes.nodes.append(helper.make_node("Sigmoid", [x], [sigmoid]))
    nodes.add(layer, "Mul", [x, sigmoid])


def _part(nodes: Nodes, layer: Layer, x: str) -> None:
    bounds = {"start": layer.start, "end": layer.start + layer.units, "axis": 1}
    names = [f"{layer.name}.{bound}" for bound in bounds]
    nodes.initialisers += [
        helper.make_tensor(name, TensorProto.INT64, [1], [number])
        for name, number in zip(names, bounds.values(), strict=True)
    ]
    nodes.add(layer, "Slice", [x, *names])


def _dueling(nodes: Nodes, layer: Layer, advantages: str, value: str) -> None:
    mean, above = f"{layer.name}.mean", f"{layer.name}.above"
    nodes.nodes.append(helper.make_node("ReduceMean", [advantages], [mean], axes=[1]))
    nodes.nodes.append(helper.make_node("Sub", [advantages, mean], [above]))
    nodes.add(layer, "Add", [value, above])


def _log_std(nodes: Nodes, layer: Layer, x: str) -> None:
    # x · 0 + log_std: one row of numbers for each row of x
    none, rows = f"{layer.name}.none", f"{layer.name}.rows"
    shape = [nodes.shapes[layer.reads[0]][0], layer.units]
    zeros = helper.make_tensor(none, TensorProto.FLOAT, shape, [0.0] * prod(shape))
    nodes.initialisers.append(zeros)
    nodes.nodes.append(helper.make_node("Gemm", [x, none, f"{layer.name}.log_std"], [rows]))
    nodes.add(layer, "Concat", [x, rows], axis=1)


def _lstm_cell(nodes: Nodes, layer: Layer, gates: str, cell: str) -> None:
    of_input, forget, new, _ = nodes.parts(gates, 4)
    opened = [nodes.compute(layer, "Sigmoid", gate) for gate in (forget, of_input)]
    kept = nodes.compute(layer, "Mul", opened[0], cell)
    added = nodes.compute(layer, "Mul", opened[1], nodes.compute(layer, "Tanh", new))
    nodes.add(layer, "Add", [kept, added])


def _lstm_output(nodes: Nodes, layer: Layer, gates: str, cell: str) -> None:
    gate = nodes.compute(layer, "Sigmoid", nodes.parts(gates, 4)[3])
    nodes.add(layer, "Mul", [gate, nodes.compute(layer, "Tanh", cell)])


def _gru(nodes: Nodes, layer: Layer, of_input: str, of_state: str, state: str) -> None:
    pairs = zip(nodes.parts(of_input, 3), nodes.parts(of_state, 3), strict=True)
    *gates, (new, new_h) = pairs
    reset, update = (
        nodes.compute(layer, "Sigmoid", nodes.compute(layer, "Add", *gate)) for gate in gates
    )
    new_h = nodes.compute(layer, "Mul", reset, new_h)
    new = nodes.compute(layer, "Tanh", nodes.compute(layer, "Add", new, new_h))
    away = nodes.compute(layer, "Sub", state, new)
    nodes.add(layer, "Add", [new, nodes.compute(layer, "Mul", update, away)])


def _mean_of_choices(nodes: Nodes, layer: Layer, *logits: str) -> None:
    _logarithm(nodes, layer, _mean_probabilities(nodes, layer, logits))


def _votes(nodes: Nodes, layer: Layer, *logits: str) -> None:
    votes = []
    for each in logits:
        most = nodes.compute(layer, "ReduceMax", each, axes=[1], keepdims=1)
        chosen = nodes.compute(layer, "Equal", each, most)
        votes.append(nodes.compute(layer, "Cast", chosen, to=TensorProto.FLOAT))
    shares = nodes.compute(layer, "Mean", *votes)
    mean = _mean_probabilities(nodes, layer, logits)
    parts = [
        nodes.compute(layer, "Mul", share, nodes.constant(layer, factor))
        for share, factor in ((shares, 1.0 - TIES), (mean, TIES))
    ]
    _logarithm(nodes, layer, nodes.compute(layer, "Add", *parts))


def _mean_probabilities(nodes: Nodes, layer: Layer, logits: Sequence[str]) -> str:
    each = [nodes.compute(layer, "Softmax", one, axis=1) for one in logits]
    return nodes.compute(layer, "Mean", *each)


def _logarithm(nodes: Nodes, layer: Layer, shares: str) -> None:
    least = nodes.constant(layer, SMALLEST)
    nodes.add(layer, "Log", [nodes.compute(layer, "Max", shares, least)])


def _mean_of_numbers(nodes: Nodes, layer: Layer, *parameters: str) -> None:
    bounds = [nodes.constant(layer, bound) for bound in LOG_STD_RANGE]
    two, half = (nodes.constant(layer, factor) for factor in (2.0, 0.5))
    means, variances = [], []
    for each in parameters:
        mean, log_std = nodes.parts(each, 2)
        clipped = nodes.compute(layer, "Clip", log_std, *bounds)
        means.append(mean)
        variances.append(nodes.compute(layer, "Exp", nodes.compute(layer, "Mul", clipped, two)))
    mean = nodes.compute(layer, "Mean", *means)
    away = [nodes.compute(layer, "Sub", each, mean) for each in means]
    squares = [nodes.compute(layer, "Mul", each, each) for each in away]
    own, between = (nodes.compute(layer, "Mean", *each) for each in (variances, squares))
    log = nodes.compute(layer, "Log", nodes.compute(layer, "Add", own, between))
    nodes.add(layer, "Concat", [mean, nodes.compute(layer, "Mul", log, half)], axis=1)


def _weights(layer: Layer) -> list[str]:
    return [f"{layer.name}.weight", f"{layer.name}.bias"][: 1 + layer.bias]


def _window(layer: Layer) -> dict[str, list[int]]:
    return {
        "strides": [layer.stride] * 2,
        "kernel_shape": [layer.kernel] * 2,
        "pads": [layer.padding] * 4,
    }


KINDS: dict[str, Callable[..., None]] = {
    "scale": _scaling,
    "convolution": _convolution,
    "dense": lambda nodes, layer, x: nodes.add(layer, "Gemm", [x, *_weights(layer)], transB=1),
    "max_pool": lambda nodes, layer, x: nodes.add(layer, "MaxPool", [x], **_window(layer)),
    "flatten": lambda nodes, layer, x: nodes.add(layer, "Flatten", [x], axis=1),
    "relu": lambda nodes, layer, x: nodes.add(layer, "Relu", [x]),
    "tanh": lambda nodes, layer, x: nodes.add(layer, "Tanh", [x]),
    "elu": lambda nodes, layer, x: nodes.add(layer, "Elu", [x]),
    "silu": _silu,
    "add": lambda nodes, layer, x, y: nodes.add(layer, "Add", [x, y]),
    "concat": lambda nodes, layer, *parts: nodes.add(layer, "Concat", parts, axis=1),
    "module": add_module,
    "part": _part,
    "dueling": _dueling,
    "log_std": _log_std,
    "mean": lambda nodes, layer, *parts: nodes.add(layer, "Mean", parts),
    "mean_of_choices": _mean_of_choices,
    "votes": _votes,
    "mean_of_numbers": _mean_of_numbers,
    "normalise": _normalise,
    "lstm_cell": _lstm_cell,
    "lstm_output": _lstm_output,
    "gru": _gru,
}
"""Kind of a layer → function that adds its nodes, given the names of its float inputs."""


def why_not(graph: PolicyGraph) -> str | None:
    """The reason why ONNX cannot compute the graph: a layer's kind or a name; None if it can."""
    for layer in graph.layers():
        if layer.kind not in KINDS and layer.kind != "state":
            return (
                f"layer {layer.name!r}: ONNX has no kind {layer.kind!r}; expected one of "
                f"{', '.join(KINDS)}, or put it into compress.graphs.onnx_graph.KINDS"
            )
    states = state_inputs(graph)
    taken = {"parameters", *states, *(f"next_{name}" for name in states)}
    for leaf in graph.architecture.observation:
        if leaf in taken:
            return (
                f"the observation's part {leaf!r} has the name of an output of the ONNX graph, or "
                "of an input for the memory's state; give it another name"
            )
    return None


def _quantised(nodes: Nodes, layer: Layer) -> bool:
    """Add an int8 layer that computes in steps; False for one that computes in float.

    Outputs of products are quantised as `PolicyGraph.output_scales` says. tanh, sums and the
    graph's output are computed in float.
    """
    graph, read = nodes.graph, layer.reads[0]
    scale = nodes.scales.get(read)
    if layer.is_product and not graph.is_integer(layer):
        return False
    if layer.is_product:
        steps = nodes.as_steps(read, f"{layer.name}.input")
        output = graph.output_scales()[layer.name]
        _int8_product(nodes, layer, steps, [] if output is None else _scale(output))
        if output is not None:
            nodes.scales[layer.name] = output
        return True
    if layer.kind == "scale":
        for product, raw in graph.raw_products().items():
            if raw.name == layer.name and product not in graph.kept:  # quantised already
                nodes.names[layer.name] = nodes.names[read]
                nodes.scales[layer.name] = f"{product}.input"
                return True
        return False
    if layer.kind == "concat":
        return _quantised_concat(nodes, layer)
    if scale is None:
        return False
    if layer.kind == "relu" and scale.endswith(".input"):
        nodes.names[layer.name] = nodes.names[read]  # the clamp at zero of the product
    elif layer.kind in ("flatten", "max_pool"):
        KINDS[layer.kind](nodes, layer, nodes.names[read])
    else:
        return False
    nodes.scales[layer.name] = scale
    return True


def _quantised_concat(nodes: Nodes, layer: Layer) -> bool:
    """Add a concatenation in the steps of the product that reads it; False without one."""
    following = [reader for reader in nodes.graph.layers() if layer.name in reader.reads]
    if len(following) != 1 or not nodes.graph.is_integer(following[0]):
        return False
    scale = f"{following[0].name}.input"
    parts = [nodes.as_steps(name, scale) for name in layer.reads]
    KINDS[layer.kind](nodes, layer, *parts)
    nodes.scales[layer.name] = scale
    return True


def _int8_product(nodes: Nodes, layer: Layer, steps: str, output: list[str]) -> None:
    weight_zero = f"{layer.name}.weight_zero" if nodes.graph.per_channel else "weight_zero"
    inputs = [steps, *_scale(f"{layer.name}.input")]
    inputs += [f"{layer.name}.weight", f"{layer.name}.weight_scale", weight_zero]
    bias = [f"{layer.name}.bias"] if layer.bias else []
    if layer.kind == "convolution":
        nodes.add(layer, "QLinearConv", [*inputs, *output, *bias], **_window(layer))
    else:
        inputs += [*(bias or [""]), *output]
        nodes.add(layer, "QGemm", inputs, domain=_MICROSOFT, transB=1)


def _scale(end: str) -> list[str]:
    return [f"{end}_scale", f"{end}_zero"]


def _external(name: str, spec: TensorSpec) -> onnx.TensorProto:
    tensor = TensorProto()
    tensor.name = name
    tensor.data_type = _ONNX_TYPES[spec.dtype]
    tensor.dims.extend(spec.shape)
    mark_external(tensor)
    return tensor


def mark_external(tensor: onnx.TensorProto) -> None:
    """Remove the numbers of an initialiser: they are given with the session."""
    for numbers in ("raw_data", "float_data", "int32_data"):
        tensor.ClearField(numbers)
    tensor.data_location = TensorProto.EXTERNAL
    location = tensor.external_data.add()
    location.key, location.value = "location", "given-with-the-session"
