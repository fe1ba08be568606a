"""ONNX sessions kept by the structure of their graphs, so that a new version only swaps weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import onnxruntime

from aclearn.rollout import Executable
from compress.graphs.policy_graph import PolicyGraph, Tensors
from compress.runtimes.onnx_runtime import (
    OnnxExecutable,
    given_tensors,
    load_session,
    shared_session,
)
from compress.runtimes.optimised_onnx import Skeleton, skeleton_of

_Made = TypeVar("_Made")

#: Executables' graphs that a runtime keeps; a chain that is switched comes back.
_GRAPHS_KEPT = 4


class GraphCache:
    """Makes executables; keeps the graphs that it has built, since only their tensors change.

    Args:
        threads: of the runtime.
    """

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._skeletons: dict[str, Skeleton] = {}
        self._shared: dict[str, onnxruntime.InferenceSession] = {}
        self._traced: dict[str, bytes] = {}

    def executable(
        self, graph: PolicyGraph, tensors: Tensors, *, brief: bool = False
    ) -> Executable:
        """The graph with these tensors, ready to run; they must fit (see `check_tensors`).

        Args:
            graph: what to run.
            tensors: by the names of `graph.tensors()`.
            brief: for a few observations only: ready at once, slower to run; the tensors must not
                be written any more.
        """
        if graph.runtime != "onnx":
            # imported here: a process that runs ONNX only never loads torch
            from compress.runtimes.torch_runtime import TorchExecutable, trace

            if graph.runtime == "torch":
                return TorchExecutable(graph, tensors)
            traced = self._kept(self._traced, graph, lambda: trace(graph))
            return TorchExecutable(graph, tensors, traced=traced)
        if brief:
            session = self._kept(
                self._shared, graph, lambda: shared_session(graph, threads=self._threads)
            )
            return OnnxExecutable(session, given_tensors(graph, tensors))
        skeleton = self._kept(self._skeletons, graph, lambda: skeleton_of(graph))
        return load_session(skeleton, graph, tensors, threads=self._threads)

    @staticmethod
    def _kept(made: dict[str, _Made], graph: PolicyGraph, make: Callable[[], _Made]) -> _Made:
        """What was made for the graph, or is made now; the one made first is forgotten."""
        digest = graph.digest()
        if digest not in made:
            made[digest] = make()
            if len(made) > _GRAPHS_KEPT:
                del made[next(iter(made))]
        return made[digest]
