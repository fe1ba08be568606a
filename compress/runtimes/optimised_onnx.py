"""What ONNX Runtime makes of a graph, kept, so that its sessions need not rewrite it again."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from compress.graphs.onnx_graph import build_onnx, mark_external, onnx_tensors
from compress.graphs.policy_graph import PolicyGraph

_LOGGER = logging.getLogger(__name__)
_ERRORS_ONLY = 3


@dataclass(frozen=True)
class Skeleton:
    """A serialised ONNX model without its weights.

    Attributes:
        model: as `build_onnx` gives it, or as ONNX Runtime has rewritten that.
        finished: nothing is left to rewrite.
    """

    model: bytes
    finished: bool = False


def skeleton_of(graph: PolicyGraph) -> Skeleton:
    """The graph, for int8 rewritten for this processor where that does not depend on the weights.

    To rewrite it takes a sixth of the time in which a session of a small int8 policy is made, and
    the result is the same for every version. Not so with float convolutions: their weights are laid
    out again while rewriting, so that a kept graph would bring old weights along. So the graph is
    rewritten with two sets of weights; where the results differ in anything but the weights
    themselves, or the weights are no longer there, sessions have to do it.
    """
    plain = build_onnx(graph)
    if graph.precision != "int8":
        return Skeleton(plain)
    first, second = (_rewritten(plain, _numbers(graph, start)) for start in (1, 2))
    if first is None or first != second:
        return Skeleton(plain)
    return Skeleton(first, finished=True)


def _numbers(graph: PolicyGraph, start: int) -> dict[str, NDArray[np.generic]]:
    """Tensors for the graph, a number each that no other one has: of equal ones one would do."""
    return {
        name: np.full(spec.shape, start + i % 125, spec.dtype)
        for i, (name, spec) in enumerate(onnx_tensors(graph).items())
    }


def _rewritten(plain: bytes, tensors: dict[str, NDArray[np.generic]]) -> bytes | None:
    """What a session with these tensors computes, without them; None where it cannot be kept."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY  # it warns that other processors want other graphs
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(tensor) for tensor in tensors.values()]
    options.add_external_initializers(list(tensors), values)
    try:
        with tempfile.TemporaryDirectory(prefix="aclearn-") as folder:
            path = Path(folder) / "rewritten.onnx"
            options.optimized_model_filepath = str(path)
            onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
            model = onnx.load_model(str(path))
    except Exception as error:
        # a full disk, or none to write to (ONNX Runtime has no common error for it), costs time
        # only; of a graph that cannot be computed the session itself will say so
        _LOGGER.warning("event=graph_not_kept reason=%r", str(error))
        return None
    kept = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, tensor in tensors.items():
        if name not in kept or not np.array_equal(onnx.numpy_helper.to_array(kept[name]), tensor):
            return None
        mark_external(kept[name])
    rewritten: bytes = model.SerializeToString(deterministic=True)
    return rewritten
