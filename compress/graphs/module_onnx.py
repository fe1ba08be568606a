"""The ONNX nodes of a network of the user's own."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import onnx
from onnx import compose, helper

from aclearn.policies import Layer

if TYPE_CHECKING:
    from compress.graphs.onnx_graph import Nodes


def add_module(nodes: Nodes, layer: Layer, *inputs: str) -> None:
    """Add the exported graph of a "module" layer; its output is what acting needs."""
    graph, spec = _graph_of(layer), layer.module
    assert spec is not None
    weights = {f"{layer.name}.{name}" for name, _ in spec.tensors}
    nodes.initialisers += [tensor for tensor in graph.initializer if tensor.name not in weights]
    for given, name in zip(inputs, spec.inputs, strict=True):
        nodes.nodes.append(helper.make_node("Identity", [given], [f"{layer.name}.{name}"]))
    nodes.nodes += graph.node
    nodes.add(layer, "Identity", [graph.output[0].name])


def unused_tensors(layer: Layer) -> list[str]:
    """Parameters of a "module" layer that its graph does not read, such as those of its value."""
    if layer.module is None:
        return []
    read = {tensor.name for tensor in _graph_of(layer).initializer}
    return [name for name in layer.tensor_names if name not in read]


# it is parsed for every session
@lru_cache(maxsize=4)
def _graph_of(layer: Layer) -> onnx.GraphProto:
    """The exported graph, all of whose names begin with the layer's."""
    assert layer.module is not None
    model = onnx.load_model_from_string(layer.module.model)
    return compose.add_prefix(model, f"{layer.name}.").graph
