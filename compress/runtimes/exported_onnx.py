"""Graphs whose weights ONNX cannot swap: torch exports each version again.

That takes tenths of a second a version, and loads torch.
"""

from __future__ import annotations

from compress.graphs.policy_graph import PolicyGraph, Tensors


def needs_export(graph: PolicyGraph) -> bool:
    """Whether it has a network of the user's own whose graph cannot take other weights."""
    return any(layer.module is not None and not layer.module.onnx for layer in graph.layers())


def exported_model(graph: PolicyGraph, tensors: Tensors) -> bytes:
    """A serialised ONNX model of one version, with its weights: leaves → `parameters`.

    Raises:
        ChainError: the export fails, or its output differs from torch's.
    """
    # imported here: only these graphs need torch
    from compress.graphs.graph_network import GraphNetwork, ParametersOnly, example_leaves
    from compress.modules.export import export_module

    network = ParametersOnly(GraphNetwork(graph, with_value=False).load(tensors))
    leaves = graph.architecture.observation
    return export_module(network, example_leaves(leaves), inputs=[*leaves], outputs=["parameters"])
