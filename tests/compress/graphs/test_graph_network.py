"""The precision in which a graph's torch module computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from compress import PolicyGraph
from compress.graphs.graph_network import GraphNetwork


@pytest.mark.parametrize("ranks", [(), (("policy", 1),)], ids=["whole", "factored"])
def test_values_and_parameters_keep_their_digits_under_bf16(architecture, small, ranks) -> None:
    graph = PolicyGraph(architecture, ranks=ranks)
    tensors = {n: np.zeros(s.shape, s.dtype) for n, s in graph.tensors(with_value=True).items()}
    # only the biases are left, and bf16 would make 100.5 of the first
    tensors["value.bias"][:] = 100.3
    biases = np.linspace(9.01, 12.07, architecture.parameter_count).astype(np.float32)
    tensors["policy.up.bias" if ranks else "policy.bias"][:] = biases
    network = GraphNetwork(graph).load(tensors)
    observations = torch.from_numpy(small.observations(architecture, 2))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits, values = network(observations)
    assert values.tolist() == pytest.approx([100.3, 100.3], rel=1e-6)
    torch.testing.assert_close(logits, torch.from_numpy(biases).expand(2, -1))
