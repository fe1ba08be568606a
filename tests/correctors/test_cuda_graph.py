"""Correctors inside a captured CUDA graph, without waits for the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from correctors import (
    Adaptive,
    Auto,
    CorrectionInput,
    CorrectorChain,
    RatioMask,
    SecondMoment,
    TVMask,
    UnrollMask,
    importance_sampling,
    importance_weights,
    q_lambda,
    retrace,
    tree_backup,
    vtrace,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    "function", [vtrace, importance_weights, retrace, tree_backup, q_lambda, importance_sampling]
)
def test_a_replayed_graph_corrects_what_was_copied_into_its_inputs(
    random_trace, random_steps, function
) -> None:
    def inputs(seed):
        if function is vtrace:
            return random_trace(20, 7, seed=seed)
        steps = random_steps(20, 7, seed=seed)
        if function is importance_weights:
            return {"log_rhos": steps["next_log_rhos"]}
        if function in (tree_backup, q_lambda):
            del steps["next_log_rhos"]
        return steps

    options = {} if function in (vtrace, importance_weights) else {"lambda_": 0.9}
    static = {name: tensor.cuda() for name, tensor in inputs(0).items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        function(**static, **options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function(**static, **options)
    other = inputs(1)
    for name, tensor in other.items():
        static[name].copy_(tensor)
    graph.replay()

    expected = function(**other, **options)
    pairs = zip(results, expected, strict=True) if function is vtrace else [(results, expected)]
    for result, wanted in pairs:
        np.testing.assert_allclose(result.cpu().numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "link",
    [RatioMask(), TVMask(), UnrollMask(0.7, 1.4), SecondMoment(0.3), Adaptive(), Auto()],
    ids=lambda link: type(link).__name__,
)
def test_a_replayed_graph_measures_and_masks_what_was_copied_into_its_inputs(
    random_trace, link
) -> None:
    def inputs(seed):
        trace = random_trace(20, 7, seed=seed)
        more = torch.rand(3, 20, 7, generator=torch.Generator().manual_seed(seed))
        extra = {"log_pi": -more[0], "behaviour_probs": more[1], "log_gaps": more[2] - 0.5}
        return trace | extra | {"valid": more[0] < 0.9}

    chain = CorrectorChain().add(link)
    static = {name: tensor.cuda() for name, tensor in inputs(0).items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        chain.correct(CorrectionInput(**static))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = chain.correct(CorrectionInput(**static))
    other = inputs(1)
    for name, tensor in other.items():
        static[name].copy_(tensor)
    graph.replay()

    expected = chain.correct(CorrectionInput(**other))
    for part in ("targets", "weights"):
        found, wanted = getattr(made, part).cpu(), getattr(expected, part)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert (made.kept is None) == (expected.kept is None)
    assert made.kept is None or torch.equal(made.kept.cpu(), expected.kept)
