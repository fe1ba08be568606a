"""Pruning of modules that are no plain chain, by Torch-Pruning where it is installed."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from torch import nn

from compress import ChainError
from compress.module_pruning import prune_module


class Residual(nn.Module):
    """A sum ties the channels of two convolutions together; two heads read what follows."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.first = nn.Conv2d(8, 12, 3, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.second = nn.Conv2d(12, 8, 3, padding=1)
        self.hidden = nn.Linear(8 * 16, 10)
        self.policy = nn.Linear(10, 6)
        self.value = nn.Linear(10, 1)

    def forward(self, x):
        x = torch.relu(self.enter(x))
        x = torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))
        x = torch.relu(self.hidden(nn.functional.max_pool2d(x, 2).flatten(1)))
        return self.policy(x), self.value(x)


@pytest.fixture
def module():
    torch.manual_seed(1)
    return Residual().train()


EXAMPLE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))
HEADS = ("policy", "value")


def test_a_residual_network_is_pruned_on_both_sides_of_the_sum(module) -> None:
    pytest.importorskip("torch_pruning")
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    pruned = prune_module(module, EXAMPLE, 0.5, HEADS)
    shapes = {name: tuple(t.shape) for name, t in pruned.state_dict().items() if t.ndim > 1}
    assert shapes == {
        "enter.weight": (4, 3, 3, 3),
        "first.weight": (6, 4, 3, 3),
        "second.weight": (4, 6, 3, 3),
        "hidden.weight": (5, 4 * 16),
        "policy.weight": (6, 5),
        "value.weight": (1, 5),
    }
    weights = sum(int(np.prod(shape)) for shape in shapes.values())
    one_each = 4 + 6 + 2 * 6 + 4 + 5 + 6 + 1  # biases, and two parameters of the normalisation
    assert sum(p.numel() for p in pruned.parameters()) == weights + one_each
    logits, values = pruned(EXAMPLE)
    assert (logits.shape, values.shape) == ((2, 6), (2, 1))
    assert torch.isfinite(logits).all() and torch.isfinite(values).all()
    (logits.sum() + values.sum()).backward()
    assert all(p.grad is not None for p in pruned.parameters())
    assert pruned.training and pruned.norm.training
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_units_that_give_nothing_are_the_ones_that_go(module) -> None:
    pytest.importorskip("torch_pruning")
    with torch.no_grad():
        for layer in (module.enter, module.second):  # both sides of the sum
            layer.weight[:4], layer.bias[:4] = 0.0, 0.0
        module.first.weight[::2], module.first.bias[::2] = 0.0, 0.0
        module.norm.weight[::2], module.norm.bias[::2] = 0.0, 0.0
        module.second.weight[:, ::2] = 0.0
        module.hidden.weight[5:], module.hidden.bias[5:] = 0.0, 0.0
        module.hidden.weight[:, : 4 * 16] = 0.0
        module.first.weight[:, :4] = 0.0
        for head in (module.policy, module.value):
            head.weight[:, 5:] = 0.0
    module.requires_grad_(False).eval()
    pruned = prune_module(module, (EXAMPLE,), 0.5, HEADS)
    assert not any(p.requires_grad for p in pruned.parameters())
    assert pruned.enter.out_channels == 4
    for answer, expected in zip(pruned(EXAMPLE), module(EXAMPLE), strict=True):
        torch.testing.assert_close(answer, expected)


def test_a_head_that_would_lose_outputs_is_refused(module) -> None:
    pytest.importorskip("torch_pruning")
    with pytest.raises(ChainError, match="name the layers that give them in ignored"):
        prune_module(module, EXAMPLE, 0.5, ("value",))


def test_channels_are_rounded(module) -> None:
    pytest.importorskip("torch_pruning")
    pruned = prune_module(module, EXAMPLE, 0.3, HEADS, round_to=4)
    assert [pruned.first.out_channels % 4, pruned.hidden.out_features % 4] == [0, 0]
    assert pruned.first.out_channels < 12


@pytest.mark.parametrize("sparsity", [0, 1, -0.5, 1.5, float("nan")])
def test_wrong_shares_are_refused(module, sparsity) -> None:
    with pytest.raises(ChainError, match="sparsity: expected more than 0 and less than 1"):
        prune_module(module, EXAMPLE, sparsity, HEADS)


def test_unknown_names_are_refused(module) -> None:
    pytest.importorskip("torch_pruning")
    with pytest.raises(ChainError, match="'head' is unknown; expected some of enter, first"):
        prune_module(module, EXAMPLE, 0.5, ("head",))


def test_without_the_library_the_message_says_how_to_get_it(module, monkeypatch) -> None:
    real = importlib.import_module

    def absent(name, *rest):
        if name == "torch_pruning":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ChainError, match=r"pip install 'aclearn\[prune-modules\]'"):
        prune_module(module, EXAMPLE, 0.5, HEADS)
