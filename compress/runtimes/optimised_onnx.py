"""Graphs that ONNX Runtime has optimised, kept so that sessions need not optimise them again."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from compress.graphs.onnx_graph import build_onnx, mark_external, onnx_tensors
from compress.graphs.policy_graph import PolicyGraph

_LOGGER = logging.getLogger(__name__)
_ERRORS_ONLY = 3


@dataclass(frozen=True)
class Skeleton:
    """A serialised ONNX model without its weights.

    Attributes:
        model: the result of `build_onnx`, or ONNX Runtime's optimisation of it.
        finished: sessions need not optimise it.
    """

    model: bytes
    finished: bool = False


def skeleton_of(graph: PolicyGraph) -> Skeleton:
    """The graph; for int8, optimised for this CPU if the result does not depend on the weights.

    Optimisation is a sixth of the time of a session of a small int8 policy, and its result is the
    same for every version. Float convolutions differ: their weights are laid out again, so that a
    kept graph would contain old weights. So the graph is optimised with two sets of weights. Where
    the results differ in more than the weights, or the weights are missing, sessions optimise it
    themselves.
    """
    plain = build_onnx(graph)
    if graph.precision != "int8":
        return Skeleton(plain)
    first, second = (_rewritten(plain, _numbers(graph, start)) for start in (1, 2))
    if first is None or first != second:
        return Skeleton(plain)
    return Skeleton(first, finished=True)


def _numbers(graph: PolicyGraph, start: int) -> dict[str, NDArray[np.generic]]:
    """Tensors for the graph with different constants, so that none are merged."""
    return {
        name: np.full(spec.shape, start + i % 125, spec.dtype)
        for i, (name, spec) in enumerate(onnx_tensors(graph).items())
    }


def _rewritten(plain: bytes, tensors: dict[str, NDArray[np.generic]]) -> bytes | None:
    """The optimised graph of a session without its tensors; None if it cannot be kept."""
    import onnxruntime  # here as in `new_session`

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY  # it warns that other CPUs need other graphs
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(tensor) for tensor in tensors.values()]
    options.add_external_initializers(list(tensors), values)
    try:
        with tempfile.TemporaryDirectory(prefix="aclearn-") as folder:
            path = Path(folder) / "rewritten.onnx"
            options.optimized_model_filepath = str(path)
            onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
            model = onnx.load_model(str(path))
    except Exception as error:
        # a full disk (ONNX Runtime has no common error for it) costs time only; the session itself
        # reports a graph that cannot be computed
        _LOGGER.warning("event=graph_not_kept reason=%r", str(error))
        return None
    kept = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, tensor in tensors.items():
        if name not in kept or not np.array_equal(onnx.numpy_helper.to_array(kept[name]), tensor):
            return None
        mark_external(kept[name])
    rewritten: bytes = model.SerializeToString(deterministic=True)
    return rewritten
