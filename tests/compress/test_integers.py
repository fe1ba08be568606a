"""torch's reading of int8 graphs against the one written as loops over windows."""

from __future__ import annotations

import numpy as np
import pytest
from integer_policies import integer_logits as loops
from test_quantizer import prepared, quantise

from compress import Context
from compress.integers import integer_logits
from compress.quantizer import Quantizer


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("name", ["images", "flat", "residual", "factored", "factored-residual"])
def test_torch_says_what_loops_over_int64_say(small, name, per_channel) -> None:
    policy = prepared(name, small)
    architecture = policy.graph.architecture
    context = Context(small.observations(architecture, 64, seed=1))
    result = quantise(Quantizer(per_channel=per_channel), policy, context)
    observations = small.observations(architecture, 40, seed=2)
    np.testing.assert_allclose(
        integer_logits(result.graph, result.tensors, observations),
        loops(result.graph, result.tensors, observations),
        rtol=1e-12,
        atol=1e-12,
    )
