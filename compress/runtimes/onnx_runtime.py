"""Policies in ONNX Runtime on the CPU: one session per version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aclearn.policies import Architecture
from aclearn.types import PolicyOutput, State
from compress.errors import ChainError, RefusedTensors
from compress.graphs.onnx_graph import build_onnx, onnx_tensors, state_inputs
from compress.graphs.policy_graph import PolicyGraph, Tensors, check_tensors, stored_as_float32
from compress.graphs.units import fold_scale
from compress.runtimes.optimised_onnx import Skeleton

if TYPE_CHECKING:
    import onnxruntime


class OnnxExecutable:
    """A session that keeps the contract of a policy by the names of its inputs and outputs.

    Inputs are the leaves of an observation and `state_0`, `state_1`, …; outputs are `parameters`,
    `value` where the model has it, and a `next_state_i` for each `state_i`.

    Args:
        given: inputs that are the same in each call.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        given: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self._session, self._given = session, given or {}
        inputs = {tensor.name: tensor.shape[1:] for tensor in session.get_inputs()}
        outputs = {output.name for output in session.get_outputs()}
        count = sum(f"next_state_{i}" in outputs for i in range(len(outputs)))
        self._states = {f"state_{i}": inputs[f"state_{i}"] for i in range(count)}
        self._has_value = "value" in outputs
        value = ["value"] if self._has_value else []
        self._outputs = ["parameters", *(f"next_{name}" for name in self._states), *value]

    def step(
        self, observations: Mapping[str, NDArray[Any]], state: State = ()
    ) -> PolicyOutput[NDArray[np.float32]]:
        """The policy's output for observations `[B, *shape]` by leaf and its state `[B, …]`."""
        inputs = {**observations, **self._given}
        if self._states:
            width = len(next(iter(observations.values())))
            state = state or tuple(np.zeros((width, *s), np.float32) for s in self._states.values())
            inputs.update(zip(self._states, state, strict=False))
        parameters, *rest = self._session.run(self._outputs, inputs)
        value = rest.pop() if self._has_value else None
        return PolicyOutput(parameters, value, state=tuple(rest))


def needs_export(graph: PolicyGraph) -> bool:
    """Whether it has a network of the user's own whose graph cannot take other weights."""
    return any(layer.module is not None and not layer.module.onnx for layer in graph.layers())


def exported_model(graph: PolicyGraph, tensors: Tensors) -> bytes:
    """A serialised ONNX model of one version, with its weights; its ends are those of `build_onnx`.

    It takes tenths of a second, and loads torch.

    Raises:
        ChainError: the export fails, or its output differs from torch's.
    """
    # imported here: only these graphs need torch
    import torch

    from compress.graphs.graph_network import GraphNetwork, OneStep, example_leaves
    from compress.modules.export import export_module

    network = OneStep(GraphNetwork(graph, with_value=False).load(tensors))
    leaves = graph.architecture.observation
    given = {name: torch.zeros(2, units) for name, units in state_inputs(graph).items()}
    return export_module(
        network,
        (*example_leaves(leaves), *given.values()),
        inputs=[*leaves, *given],
        outputs=["parameters", *(f"next_{name}" for name in given)],
    )


def load_session(
    skeleton: Skeleton, graph: PolicyGraph, tensors: Tensors, *, threads: int = 1
) -> OnnxExecutable:
    """A session of its own for one version's tensors.

    Args:
        skeleton: of the graph (`skeleton_of`, or a `Skeleton` of `build_onnx`).
        tensors: by the names of `graph.tensors()`; copied by the session.
    """
    # External initialisers are inserted before all optimisations; with `add_initializer` the
    # layout pass would keep old convolution weights.
    given = given_tensors(graph, tensors)
    return OnnxExecutable(
        new_session(skeleton.model, threads=threads, given=given, finished=skeleton.finished)
    )


def exported_session(graph: PolicyGraph, tensors: Tensors, *, threads: int = 1) -> OnnxExecutable:
    """A session of a graph of `needs_export`, which torch exports with these tensors."""
    return OnnxExecutable(new_session(exported_model(graph, tensors), threads=threads))


def shared_session(graph: PolicyGraph, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """One session for all versions of a graph: an `OnnxExecutable` of it is `given` its tensors.

    A version is ready at once, where its own session takes milliseconds. Each call takes several
    times longer, since variable weights are not laid out for the kernels.
    """
    return new_session(build_onnx(graph, tensors_as_inputs=True), threads=threads)


def given_tensors(graph: PolicyGraph, tensors: Tensors) -> dict[str, NDArray[Any]]:
    """The tensors in ONNX Runtime's dtypes and shapes."""
    given = {}
    for name, spec in onnx_tensors(graph).items():
        tensor = tensors[name]
        if graph.precision in ("fp16", "bf16"):
            tensor = stored_as_float32(tensor)
        # reshaped: ascontiguousarray makes scalars one-dimensional
        given[name] = np.ascontiguousarray(tensor).reshape(spec.shape)
    return given


def new_session(
    model: bytes,
    *,
    threads: int = 1,
    given: Mapping[str, NDArray[Any]] | None = None,
    finished: bool = False,
) -> onnxruntime.InferenceSession:
    """A session on the CPU, with these numbers of external initialisers; optimised if finished."""
    import onnxruntime  # here, since it starts a thread: roles are forked before

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # An arena per session fragments the process's memory: a predictor grew by a third. The
    # process's allocator keeps freed blocks anyway.
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if finished:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(x) for x in (given or {}).values()]
    options.add_external_initializers(list(given or {}), values)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class OnnxRuntime:
    """Makes sessions of the uncompressed policy's weights: one graph, a new session per version.

    The division of images is folded into the first layer's weights, once per version.

    Args:
        threads: intra-operator threads; 1 keeps a process on one core.
    """

    def __init__(self, architecture: Architecture, *, threads: int = 1) -> None:
        self._given = PolicyGraph(architecture)
        folded = bool(self._given.raw_products())
        self._graph = PolicyGraph(architecture, scale_folded=folded, runtime="onnx", static=True)
        self._threads = threads
        self._skeleton = None if needs_export(self._graph) else Skeleton(build_onnx(self._graph))

    def load(self, tensors: Tensors) -> OnnxExecutable:
        """See `PolicyRuntime.load`."""
        check_tensors(self._given, tensors, with_value=True)
        folded = fold_scale(self._given, tensors)
        if self._skeleton is None:
            try:
                return exported_session(self._graph, folded, threads=self._threads)
            except ChainError as error:  # of this version: another may be exported
                raise RefusedTensors(str(error)) from error
        return load_session(self._skeleton, self._graph, folded, threads=self._threads)
