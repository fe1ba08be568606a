"""Runtimes: execute a policy version and swap to the next one without ever mixing two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from aclearn.policies import Architecture
from compress.graphs.onnx_graph import build_onnx, onnx_tensors
from compress.graphs.policy_graph import PolicyGraph, Tensors, check_tensors, stored_as_float32
from compress.graphs.units import fold_scale
from compress.runtimes.optimised_onnx import Skeleton


def _session_options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # An arena for each of the sessions that come and go tears holes into the process's memory:
    # a predictor grew by a third. The process's own allocator keeps what is freed anyway.
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _given_tensors(graph: PolicyGraph, tensors: Tensors) -> dict[str, NDArray[Any]]:
    """The tensors as ONNX Runtime takes them."""
    given = {}
    for name, spec in onnx_tensors(graph).items():
        tensor = tensors[name]
        if graph.precision in ("fp16", "bf16"):
            tensor = stored_as_float32(tensor, graph.precision)
        # reshaped: a scalar must stay one, which ascontiguousarray forgets
        given[name] = np.ascontiguousarray(tensor).reshape(spec.shape)
    return given


class OnnxExecutable:
    """A session of ONNX Runtime on the CPU with one version's tensors.

    Args:
        skeleton: of the graph (`skeleton_of`, or a `Skeleton` of `build_onnx`).
        graph: of the policy.
        tensors: as `graph.tensors()` says; copied by the session.
        threads: intra-operator threads; 1 keeps a process on one core.
    """

    def __init__(
        self, skeleton: Skeleton, graph: PolicyGraph, tensors: Tensors, *, threads: int = 1
    ) -> None:
        options = _session_options(threads)
        if skeleton.finished:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        # External initialisers are put in before any optimisation; `add_initializer` would leave
        # the layout pass with the old convolution weights.
        given = _given_tensors(graph, tensors)
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(tensor) for tensor in given.values()]
        options.add_external_initializers(list(given), values)
        self._session = onnxruntime.InferenceSession(
            skeleton.model, options, providers=["CPUExecutionProvider"]
        )

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`."""
        result: NDArray[np.float32] = self._session.run(None, {"observations": observations})[0]
        return result


class BriefSession:
    """One session of ONNX Runtime for all versions of a graph: each call brings its tensors.

    A version is ready at once, where a session of its own takes milliseconds; each call takes
    several times longer, since weights that may change are not laid out for the kernels. For
    whoever asks a version a few questions only.

    Args:
        graph: of the policies.
        threads: intra-operator threads.
    """

    def __init__(self, graph: PolicyGraph, *, threads: int = 1) -> None:
        self._graph = graph
        self._session = onnxruntime.InferenceSession(
            build_onnx(graph, tensors_as_inputs=True),
            _session_options(threads),
            providers=["CPUExecutionProvider"],
        )

    def executable(self, tensors: Tensors) -> BriefExecutable:
        """A version; `tensors`, as `graph.tensors()` says, must not be written any more."""
        return BriefExecutable(self._session, _given_tensors(self._graph, tensors))


class BriefExecutable:
    """One version's tensors with the session of all versions; see `BriefSession`."""

    def __init__(
        self, session: onnxruntime.InferenceSession, tensors: Mapping[str, NDArray[Any]]
    ) -> None:
        self._session, self._tensors = session, tensors

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`."""
        inputs = {"observations": observations, **self._tensors}
        result: NDArray[np.float32] = self._session.run(None, inputs)[0]
        return result


class OnnxPolicy:
    """A policy in ONNX Runtime on the CPU: one graph for ever, a new session for each version.

    Images are not divided by 255; the first layer's weights are, once a version.

    Args:
        architecture: what the weights must fit, those of the value included.
        threads: intra-operator threads; 1 keeps a process on one core.
    """

    def __init__(self, architecture: Architecture, *, threads: int = 1) -> None:
        self._given = PolicyGraph(architecture)
        images = architecture.observation_dtype == "uint8"
        self._graph = PolicyGraph(architecture, scale_folded=images, runtime="onnx", static=True)
        self._skeleton = Skeleton(build_onnx(self._graph))
        self._threads = threads
        self._executable: OnnxExecutable | None = None

    def swap(self, tensors: Tensors) -> None:
        """Replace the session by one with these weights, in one reference assignment.

        Raises:
            RefusedTensors: they do not fit or are not finite; the old session goes on.
        """
        check_tensors(self._given, tensors, with_value=True)
        self._executable = OnnxExecutable(
            self._skeleton, self._graph, fold_scale(self._given, tensors), threads=self._threads
        )

    @property
    def executable(self) -> OnnxExecutable:
        """The session with the weights of the last swap; needs a `swap` before."""
        if self._executable is None:
            raise RuntimeError("no weights yet: call swap first")
        return self._executable

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`.

        Raises:
            RuntimeError: there was no `swap` yet.
        """
        return self.executable.logits(observations)
