"""Recorded computations that are simplified, beside the same ones as they were recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from aclearn.learning.batched.graphs import simplify

M, N, K = 3, 5, 4


def _layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.relu(vmap(torch.nn.functional.linear)(x, w, b))


def _gradient(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    def loss(w: Tensor, x: Tensor, b: Tensor) -> Tensor:
        return torch.relu(torch.nn.functional.linear(x, w, b)).square().sum()

    return vmap(grad(loss))(w, x, b)


def _read_later(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = x * 2.0
    part = y[:, :2]  # a view: `y` must stay until this is read
    z = torch.relu(y - 1.0)
    return torch.cat([z, part.exp()], 1)


def _squared(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = x.exp()
    return (y * y.roll(1, 0)) - y * y


def _other_shapes(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    small = b.exp().unsqueeze(1)
    return small - (small + x.neg()).expand(M, N, K).expand(M, N, K)


def _other_types(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    positive = x.abs() > 0.5
    return (~positive).float() + x.neg().double()


def _strided(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = x.exp().transpose(1, 2)
    return (y + x.transpose(1, 2).contiguous()).reshape(M, -1)


@pytest.mark.parametrize(
    "function",
    [_layer, _gradient, _read_later, _squared, _other_shapes, _other_types, _strided],
)
def test_results_are_the_same_bits_and_inputs_stay(function: Callable[..., Tensor]) -> None:
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(*s, generator=generator) for s in ((M, N, K), (M, K, K), (M, K))]
    before = [each.clone() for each in given]
    module: GraphModule = make_fx(function)(*given)
    expected = module(*given)
    simplify(module)
    for _ in range(2):
        assert torch.equal(module(*given), expected)
    assert all(torch.equal(now, then) for now, then in zip(given, before, strict=True))


def test_a_layer_is_a_product_to_which_the_rest_is_done_in_place() -> None:
    module = make_fx(_layer)(torch.zeros(M, N, K), torch.zeros(M, K, K), torch.zeros(M, K))
    simplify(module)
    calls = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    assert calls == [
        *("aten.transpose.int", "aten.bmm.default", "aten.view.default"),
        *("aten.add_.Tensor", "aten.relu_.default"),
    ]
