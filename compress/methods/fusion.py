"""Graph fusion: linear steps beside a layer are folded into its weights.

The runtimes fuse activations into products when they load a graph.
"""

from __future__ import annotations

from dataclasses import replace

from compress.graphs.policy_graph import PolicyGraph
from compress.graphs.units import fold_scale
from compress.policy import Context, Policy
from compress.settings import ConfiguredLink, NoSettings


class Fusion(ConfiguredLink[NoSettings]):
    """Folds the division of images into the first weights, the value's included.

    Other leaves stay as they are, and so do images that a concatenation reads. For batch and input
    normalisation in a network of your own see `fold_batch_norm`, `fold_normalisation`,
    `fuse_module`. Divided by 255, weights that were below 0.016 lose digits in float16.
    """

    name = "fuse"

    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The graph, `scale_folded` where observations are images."""
        self.require_fp32(graph)
        return replace(graph, scale_folded=True) if graph.raw_products() else graph

    def compress(self, policy: Policy, context: Context) -> Policy:
        """Tensors of the graph that computes the same function in fewer steps."""
        return policy.become(self.plan(policy.graph), fold_scale(policy.graph, policy.tensors))
