"""A link whose policies prefer the last action everywhere, by far."""

from __future__ import annotations

import numpy as np

from compress import Link


class Illegal(Link):
    id = "illegal"

    def plan(self, graph):
        return graph

    def compress(self, policy, context):
        bias = policy.tensors["policy.bias"].copy()
        bias[-1] += np.float32(100)
        return policy.become(policy.graph, {**policy.tensors, "policy.bias": bias})
