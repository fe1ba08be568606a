"""Runtimes: execute a policy version and swap to the next one without ever mixing two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from aclearn.errors import AclearnError
from aclearn.policies import Architecture
from compress.graph import build_graph

Tensors = Mapping[str, NDArray[np.float32]]


class RefusedTensors(AclearnError):
    """Weights that do not fit the architecture or are not finite; the old policy stays."""


class PolicyRuntime(Protocol):
    """What acts: logits of the policy version that it holds."""

    def swap(self, tensors: Tensors) -> None:
        """Run these weights from the next call on, whole or not at all.

        Raises:
            RefusedTensors: they do not fit or are not finite; the old ones go on.
        """

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` of observations `[N, *shape]`."""


def check_tensors(architecture: Architecture, tensors: Tensors) -> None:
    """Raise `RefusedTensors` unless names, shapes and dtypes fit and every number is finite."""
    expected = architecture.tensor_shapes()
    if set(tensors) != set(expected):
        wrong = sorted(set(tensors) ^ set(expected))
        raise RefusedTensors(f"weights: missing or unknown tensors {wrong}")
    for name, shape in expected.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != shape or tensor.dtype != np.float32:
            raise RefusedTensors(
                f"weights[{name!r}]: expected float32 {shape}, got {tensor.dtype} {tensor.shape}"
            )
        # A sum is finite only if every term is, and needs no temporary array of booleans.
        with np.errstate(invalid="ignore"):  # ∞ − ∞
            total = tensor.sum(dtype=np.float64)
        if not np.isfinite(total):
            raise RefusedTensors(f"weights[{name!r}]: not finite")


class OnnxPolicy:
    """A policy in ONNX Runtime on the CPU: one graph for ever, a new session for each version.

    Args:
        architecture: what the weights must fit.
        threads: intra-operator threads; 1 keeps a process on one core.
    """

    def __init__(self, architecture: Architecture, *, threads: int = 1) -> None:
        self._architecture = architecture
        self._graph = build_graph(architecture)
        self._names = [n for n in architecture.tensor_shapes() if not n.startswith("value")]
        self._threads = threads
        self._session: onnxruntime.InferenceSession | None = None

    def swap(self, tensors: Tensors) -> None:
        """Replace the session by one with these weights, in one reference assignment.

        Raises:
            RefusedTensors: they do not fit or are not finite; the old session goes on.
        """
        check_tensors(self._architecture, tensors)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # External initialisers are put in before any optimisation; `add_initializer` would leave
        # the layout pass with the old convolution weights.
        values = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(tensors[name]))
            for name in self._names
        ]
        options.add_external_initializers(self._names, values)
        self._session = onnxruntime.InferenceSession(
            self._graph, options, providers=["CPUExecutionProvider"]
        )

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`; needs a `swap` before."""
        if self._session is None:
            raise RuntimeError("no weights yet: call swap first")
        result: NDArray[np.float32] = self._session.run(None, {"observations": observations})[0]
        return result
