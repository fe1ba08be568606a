"""Pruning of modules with branches, by Torch-Pruning if it is installed."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from torch import nn

from compress import ChainError
from compress.modules.pruning import prune_module


class Residual(nn.Module):
    """A sum ties the channels of two convolutions together; two heads read its output."""

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


def test_channels_are_rounded(module) -> None:
    pytest.importorskip("torch_pruning")
    pruned = prune_module(module, EXAMPLE, 0.3, HEADS, round_to=4)
    assert [pruned.first.out_channels % 4, pruned.hidden.out_features % 4] == [0, 0]
    assert pruned.first.out_channels < 12


@pytest.mark.parametrize(
    ("sparsity", "ignored", "reason"),
    [
        (0, HEADS, "sparsity: expected more than 0 and less than 1"),
        (1, HEADS, "sparsity: expected more than 0 and less than 1"),
        (float("nan"), HEADS, "sparsity: expected more than 0 and less than 1"),
        (0.5, ("value",), "name their layers in ignored"),  # the policy would lose outputs
        (0.5, ("head",), "'head' is unknown; expected some of enter, first"),
    ],
)
def test_wrong_shares_and_names_are_refused(module, sparsity, ignored, reason) -> None:
    pytest.importorskip("torch_pruning")
    with pytest.raises(ChainError, match=reason):
        prune_module(module, EXAMPLE, sparsity, ignored)


def test_without_the_library_the_message_says_how_to_get_it(module, monkeypatch) -> None:
    real = importlib.import_module

    def absent(name, *rest):
        if name == "torch_pruning":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ChainError, match=r"pip install 'aclearn\[prune-modules\]'"):
        prune_module(module, EXAMPLE, 0.5, HEADS)


class Recurrent(nn.Module):
    """IMPALA's small network: convolution, dense layer, LSTM over time, two heads."""

    def __init__(self, layers: int = 1, bias: bool = True) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.hidden = nn.Linear(8 * 36, 10)
        self.lstm = nn.LSTM(10, 12, num_layers=layers, bias=bias)
        self.policy = nn.Linear(12, 6)
        self.value = nn.Linear(12, 1)

    def forward(self, observations, state=None):
        time, batch = observations.shape[:2]
        x = torch.relu(self.convolution(observations.flatten(0, 1))).flatten(1)
        x = torch.relu(self.hidden(x)).reshape(time, batch, -1)
        x, state = self.lstm(x, state)
        return self.policy(x.flatten(0, 1)), self.value(x.flatten(0, 1)), state


FRAMES = torch.randn(5, 2, 3, 8, 8, generator=torch.Generator().manual_seed(3))


def find_rows(small, large):
    """The index in `large` of the row equal to each row of `small`."""
    return [next(j for j, other in enumerate(large) if torch.equal(row, other)) for row in small]


@pytest.mark.parametrize("bias", [True, False])
def test_an_lstm_loses_units_as_if_their_outputs_were_always_zero(bias) -> None:
    pytest.importorskip("torch_pruning")
    torch.manual_seed(4)
    module = Recurrent(bias=bias)
    pruned = prune_module(module, FRAMES, 0.5, HEADS)
    assert (pruned.lstm.input_size, pruned.lstm.hidden_size) == (5, 6)
    # checks which: heads kept the columns of the remaining units, hidden.bias their entries
    units = find_rows(pruned.policy.weight.T, module.policy.weight.T)
    inputs = find_rows(pruned.hidden.bias[:, None], module.hidden.bias[:, None])
    filters = find_rows(pruned.convolution.weight, module.convolution.weight)
    assert [len(units), len(inputs), len(filters)] == [6, 5, 4]

    # the whole network step by step, with the removed units held at zero
    weights = {name: tensor.detach().double() for name, tensor in module.state_dict().items()}
    x = FRAMES.flatten(0, 1).double()
    x = torch.relu(
        nn.functional.conv2d(x, weights["convolution.weight"], weights["convolution.bias"])
    )
    x = (x * only(filters, 8)[:, None, None]).flatten(1)
    x = torch.relu(x @ weights["hidden.weight"].T + weights["hidden.bias"]) * only(inputs, 10)
    h = c = torch.zeros(2, 12, dtype=torch.float64)
    logits = []
    for step in x.reshape(5, 2, 10):
        gates = step @ weights["lstm.weight_ih_l0"].T + h @ weights["lstm.weight_hh_l0"].T
        if bias:
            gates = gates + weights["lstm.bias_ih_l0"] + weights["lstm.bias_hh_l0"]
        entry, forget, cell, out = gates.chunk(4, dim=1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(entry) * torch.tanh(cell)
        h = torch.sigmoid(out) * torch.tanh(c) * only(units, 12)
        logits.append(h @ weights["policy.weight"].T + weights["policy.bias"])
    answer, _, (last_h, last_c) = pruned(FRAMES)
    torch.testing.assert_close(answer.double(), torch.cat(logits), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(last_h[0].double(), h[:, units], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(last_c[0].double(), c[:, units], rtol=1e-5, atol=1e-6)
    # and it continues from its own state, as in an actor
    torch.testing.assert_close(
        pruned(FRAMES[3:], pruned(FRAMES[:3])[2])[0], answer[6:], rtol=1e-5, atol=1e-6
    )


def only(numbers, count):
    """1 at these places, 0 elsewhere."""
    mask = torch.zeros(count, dtype=torch.float64)
    mask[numbers] = 1.0
    return mask


def test_units_of_an_lstm_without_influence_are_the_ones_that_go() -> None:
    pytest.importorskip("torch_pruning")
    torch.manual_seed(5)
    module = Recurrent()
    quiet = [0, 1, 4, 6, 9, 11]
    with torch.no_grad():
        for head in (module.policy, module.value):
            head.weight[:, quiet] = 0.0
        module.lstm.weight_hh_l0[:, quiet] = 0.0
        for gate in range(4):
            rows = [unit + 12 * gate for unit in quiet]
            module.lstm.weight_ih_l0[rows] *= 0.01
            module.lstm.weight_hh_l0[rows] *= 0.01
    pruned = prune_module(module, FRAMES, 0.5, (*HEADS, "hidden", "convolution"))
    assert pruned.lstm.hidden_size == 6
    for answer, expected in zip(pruned(FRAMES)[:2], module(FRAMES)[:2], strict=True):
        torch.testing.assert_close(answer, expected)


def test_an_lstm_of_two_layers_is_refused_unless_it_stays() -> None:
    pytest.importorskip("torch_pruning")
    with pytest.raises(ChainError, match="lstm: an LSTM with 2 layers cannot be pruned"):
        prune_module(Recurrent(layers=2), FRAMES, 0.5, HEADS)
    pruned = prune_module(Recurrent(layers=2), FRAMES, 0.5, (*HEADS, "lstm"))
    assert (pruned.lstm.input_size, pruned.lstm.hidden_size) == (5, 12)
    assert pruned(FRAMES)[0].shape == (10, 6)


def test_a_module_called_with_a_state_or_whose_heads_see_time_is_refused_with_the_reason() -> None:
    pytest.importorskip("torch_pruning")
    state = (torch.zeros(1, 2, 12), torch.zeros(1, 2, 12))
    with pytest.raises(ChainError, match="expected example_inputs with which it starts from zeros"):
        prune_module(Recurrent(), (FRAMES, state), 0.5, HEADS)

    class Unflattened(Recurrent):
        def forward(self, observations):
            x = torch.relu(self.convolution(observations.flatten(0, 1))).flatten(1)
            x = torch.relu(self.hidden(x)).reshape(*observations.shape[:2], -1)
            return self.policy(self.lstm(x)[0])

    with pytest.raises(ChainError, match="Flatten time and batch before it"):
        prune_module(Unflattened(), FRAMES, 0.5, HEADS)
