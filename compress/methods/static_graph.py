"""The last links: static graphs that a runtime executes."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from compress.graphs.onnx_graph import why_not
from compress.graphs.policy_graph import PolicyGraph, Runtime
from compress.policy import Context, Policy
from compress.settings import ConfiguredLink, NoSettings


class _StaticGraph(ConfiguredLink[NoSettings]):
    runtime: ClassVar[Runtime]

    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The graph, made static."""
        if graph.static:
            raise self.refuse(f"comes after {graph.runtime}; a chain has one static graph")
        return replace(graph, runtime=self.runtime, static=True)

    def compress(self, policy: Policy, context: Context) -> Policy:
        """Tensors, unchanged: the runtime builds the graph once."""
        graph = self.plan(policy.graph)
        return policy.become(graph, {name: policy.tensors[name] for name in graph.tensors()})


class ONNX(_StaticGraph):
    """A graph for ONNX Runtime, built once; each version has its own tensors (`build_onnx`)."""

    name = runtime = "onnx"

    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The graph, made static."""
        if (reason := why_not(graph)) is not None:
            raise self.refuse(reason)
        return super().plan(graph)


class TorchScript(_StaticGraph):
    """A traced and frozen TorchScript graph.

    PyTorch has deprecated TorchScript, and each version is frozen again: prefer `ONNX`.
    """

    name = runtime = "torchscript"

    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The graph, made static."""
        if graph.precision == "int8":
            raise self.refuse("int8 computes in ONNX Runtime only; end the chain in onnx")
        if graph.has_module:
            raise self.refuse(
                f"traces layers with other weights, and {graph.architecture.name} is a module of "
                "yours; end the chain in onnx"
            )
        return super().plan(graph)
