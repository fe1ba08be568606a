"""Built graphs, kept by structure, so that a new version only swaps weights."""

from __future__ import annotations

from functools import lru_cache, partial

from aclearn.rollout import Executable
from compress.graphs.policy_graph import PolicyGraph, Tensors
from compress.runtimes.onnx_runtime import (
    OnnxExecutable,
    exported_session,
    given_tensors,
    load_session,
    needs_export,
    shared_session,
)
from compress.runtimes.optimised_onnx import skeleton_of

#: Graphs that a runtime keeps of each kind, since chains may alternate.
_GRAPHS_KEPT = 4


class GraphCache:
    """Makes executables and keeps the built graphs, since only tensors change between versions."""

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        kept = lru_cache(maxsize=_GRAPHS_KEPT)
        self._skeleton_of, self._traced = kept(skeleton_of), kept(_traced)
        self._shared_session = kept(partial(shared_session, threads=threads))

    def executable(
        self, graph: PolicyGraph, tensors: Tensors, *, brief: bool = False
    ) -> Executable:
        """The graph with these tensors as an executable; they must fit (see `check_tensors`).

        With `brief`, it is ready at once but slower per call, for a few observations; the tensors
        must not be written any more.
        """
        if graph.runtime != "onnx":
            # imported here: a process that runs ONNX only never loads torch
            from compress.runtimes.torch_runtime import TorchExecutable

            traced = self._traced(graph) if graph.runtime == "torchscript" else None
            return TorchExecutable(graph, tensors, traced=traced)
        if needs_export(graph):
            return exported_session(graph, tensors, threads=self._threads)
        if brief:
            return OnnxExecutable(self._shared_session(graph), given_tensors(graph, tensors))
        return load_session(self._skeleton_of(graph), graph, tensors, threads=self._threads)


def _traced(graph: PolicyGraph) -> bytes:
    from compress.runtimes.torch_runtime import trace

    return trace(graph)
