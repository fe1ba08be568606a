"""ONNX nodes from a distribution's parameters to the action that the environment takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from aclearn.distributions.categorical import MASKED
from aclearn.types import ActionSpec
from aclearn.types.action_spec import ActionPart

#: Input of a model whose environment has action masks, `[N, A]` bool.
MASK = "action_mask"
_ACTION = "action"


def output_name(part: ActionPart) -> str:
    """`action`, or `action.<key>.<key>` of a part of a Dict or Tuple."""
    return ".".join([_ACTION, *map(str, part.path)])


def add_action(model: onnx.ModelProto, spec: ActionSpec, *, masked: bool) -> None:
    """Add an output `[N, *shape]` for each part: the most probable choices, or the means.

    Means are scaled and clipped as `ActionSpec.to_env` does. The choices where `MASK` is False are
    never the most probable.

    Args:
        model: with an output `parameters [N, P]`; it is changed.
        masked: the model gets an input `MASK`.
    """
    nodes = _Nodes(model.graph)
    parameters = "parameters"
    if masked:
        width = spec.mask_width
        given = helper.make_tensor_value_info(MASK, TensorProto.BOOL, ["N", width])
        model.graph.input.append(given)
        logits = nodes.columns(parameters, 0, width)
        parameters = nodes.add("Where", MASK, logits, nodes.constant(np.float32(MASKED)))
    means = nodes.add("Cast", "parameters", to=TensorProto.DOUBLE)
    column, number = 0, spec.mask_width
    for part in spec.parts:
        if part.counts:
            chosen = []
            for count in part.counts:
                logits = nodes.columns(parameters, column, count)
                chosen.append(nodes.add("ArgMax", logits, axis=1, keepdims=1))
                column += count
            starts = nodes.constant(np.array(part.starts, np.int64))
            taken = nodes.add("Add", nodes.add("Concat", *chosen, axis=1), starts)
        else:
            low, high, centre, half = map(nodes.constant, part.scaling)
            taken = nodes.columns(means, number, len(part.low))
            taken = nodes.add("Tanh", taken) if spec.squash else taken
            taken = nodes.add("Add", nodes.add("Mul", taken, half), centre)
            taken = nodes.add("Min", nodes.add("Max", taken, low), high)
            number += len(part.low)
        nodes.output(taken, part)


class _Nodes:
    """Adds nodes to a graph, with names of their own."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{_ACTION}:{len(self._graph.node)}"
        self._graph.node.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, value: NDArray[Any] | np.generic) -> str:
        name = f"{_ACTION}:{len(self._graph.node)}"
        tensor = numpy_helper.from_array(np.asarray(value), name)
        self._graph.node.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def columns(self, matrix: str, start: int, count: int) -> str:
        ends = (np.array([end], np.int64) for end in (start, start + count, 1))
        return self.add("Slice", matrix, *map(self.constant, ends))

    def output(self, taken: str, part: ActionPart) -> None:
        """The action in the part's shape and dtype, as an output of the graph."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(part.dtype))
        shape: Sequence[int] = (-1, *part.shape)
        shaped = self.add("Reshape", taken, self.constant(np.array(shape, np.int64)))
        name = output_name(part)
        self._graph.node.append(helper.make_node("Cast", [shaped], [name], to=kind))
        found = helper.make_tensor_value_info(name, kind, ["N", *part.shape])
        self._graph.output.append(found)
