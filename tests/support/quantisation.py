"""A policy through the int8 link, and into the actors' runtime."""

from __future__ import annotations

from dataclasses import replace


def quantise(link, policy, context):
    context.begin(policy)
    return link.compress(policy, context)


def run(policy):
    """The quantised policy in ONNX Runtime, as in an actor."""
    from compress.runtimes.graph_cache import GraphCache

    graph = replace(policy.graph, runtime="onnx", static=True)
    return GraphCache().executable(graph, policy.tensors)
