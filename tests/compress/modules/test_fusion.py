"""Batch normalisations and normalisers folded into the layers of a user's own module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from compress.modules.fusion import fold_batch_norm, fold_normalisation, fuse_module


def random_norm(kind, features, rng, **settings):
    norm = kind(features, **settings).double().eval()
    with torch.no_grad():
        norm.running_mean.copy_(torch.from_numpy(rng.normal(size=features)))
        norm.running_var.copy_(torch.from_numpy(rng.uniform(0.1, 4.0, features)))
        if norm.affine:
            norm.weight.copy_(torch.from_numpy(rng.normal(size=features)))
            norm.bias.copy_(torch.from_numpy(rng.normal(size=features)))
    return norm


@pytest.mark.parametrize(("bias", "affine"), [(True, True), (False, False)])
@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_a_folded_batch_normalisation_is_the_layer_and_it(kind, affine, bias) -> None:
    rng = np.random.default_rng(5)
    if kind == "dense":
        layer, x = nn.Linear(5, 4, bias=bias), rng.normal(size=(7, 5))
        norm = random_norm(nn.BatchNorm1d, 4, rng, affine=affine, eps=0.01)
    else:
        layer, x = nn.Conv2d(3, 4, 3, padding=1, bias=bias), rng.normal(size=(2, 3, 6, 6))
        norm = random_norm(nn.BatchNorm2d, 4, rng, affine=affine, eps=0.01)
    layer, x = layer.double(), torch.from_numpy(x)
    given = (layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias)
    arrays = [None if tensor is None else tensor.detach().numpy() for tensor in given]
    with torch.no_grad():
        expected = norm(layer(x))
        folded = map(torch.from_numpy, fold_batch_norm(*arrays, 0.01))
        layer.weight, layer.bias = map(nn.Parameter, folded)
        torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)


def test_folding_keeps_the_dtype() -> None:
    weight, bias = np.ones((4, 3), np.float32), np.zeros(4, np.float32)
    for results in (
        fold_batch_norm(weight, bias, np.zeros(4), np.ones(4)),
        fold_normalisation(weight, bias, 1.0, 2.0),
    ):
        assert [array.dtype for array in results] == [np.float32, np.float32]


@pytest.mark.parametrize("mean", [0.3, [0.5, -1.0, 2.0]])
def test_a_folded_normaliser_is_it_and_the_layer(mean) -> None:
    rng = np.random.default_rng(6)
    std = 0.5 if isinstance(mean, float) else np.array([0.1, 3.0, 1.0])
    weight, bias = rng.normal(size=(4, 3)), rng.normal(size=4)
    x = rng.normal(size=(6, 3))
    folded, moved = fold_normalisation(weight, bias, np.asarray(mean), std)
    expected = ((x - mean) / std) @ weight.T + bias
    np.testing.assert_allclose(x @ folded.T + moved, expected, rtol=1e-12)

    kernel, images = rng.normal(size=(4, 3, 2, 2)), rng.normal(size=(2, 3, 5, 5))
    folded, moved = fold_normalisation(kernel, None, np.asarray(mean), std)
    by_channel = np.broadcast_to(mean, 3)[:, None, None], np.broadcast_to(std, 3)[:, None, None]
    normal = torch.from_numpy((images - by_channel[0]) / by_channel[1])
    torch.testing.assert_close(
        nn.functional.conv2d(
            torch.from_numpy(images), torch.from_numpy(folded), torch.from_numpy(moved)
        ),
        nn.functional.conv2d(normal, torch.from_numpy(kernel)),
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda w: fold_batch_norm(w, None, np.zeros(3), np.ones(4)),
            r"mean: expected shape \(4,\), got \(3,\)",
        ),
        (lambda w: fold_batch_norm(w, np.zeros(1), np.zeros(4), np.ones(4)), "bias: expected"),
        (lambda w: fold_batch_norm(w, None, np.zeros(4), -np.ones(4)), "variance: expected more"),
        (
            lambda w: fold_batch_norm(w, None, np.zeros(4), np.full(4, np.nan)),
            "variance: expected more",
        ),
        (lambda w: fold_normalisation(w, None, np.zeros(4), np.ones(3)), "mean: expected shape"),
        (lambda w: fold_normalisation(w, None, 0.0, 0.0), "std: expected more than 0"),
        (lambda w: fold_normalisation(w, None, 0.0, np.array([1.0, -1.0, 1.0])), "std: expected"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((4, 3)))


class Residual(nn.Module):
    """Convolutions with normalisations, a sum, and a head with one."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(7)
        self.enter = nn.Conv2d(2, 4, 3, bias=False)
        self.enter_norm = random_norm(nn.BatchNorm2d, 4, rng)
        self.inner = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1), random_norm(nn.BatchNorm2d, 4, rng), nn.ReLU()
        )
        self.sum_norm = random_norm(nn.BatchNorm2d, 4, rng, affine=False)
        self.hidden = nn.Linear(4 * 16, 5)
        self.hidden_norm = random_norm(nn.BatchNorm1d, 5, rng, affine=False)
        self.policy = nn.Linear(5, 3)

    def forward(self, x):
        x = torch.relu(self.enter_norm(self.enter(x)))
        x = self.sum_norm(x + self.inner(x))
        return self.policy(torch.relu(self.hidden_norm(self.hidden(x.flatten(1)))))


def norms_in(module):
    return [name for name, part in module.named_modules() if "BatchNorm" in type(part).__name__]


def test_a_module_is_fused_where_a_normalisation_follows_a_layer() -> None:
    torch.manual_seed(8)
    module = Residual().double().eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    x = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    fused = fuse_module(module, x)
    assert norms_in(fused) == ["sum_norm"]  # a sum is before it
    with torch.no_grad():
        torch.testing.assert_close(fused(x), module(x), rtol=1e-10, atol=1e-10)
    assert len(norms_in(module)) == 4
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])


class Shared(nn.Module):
    """Not fusible: a layer with two readers, a layer called twice, no statistics."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(9)
        self.read_twice, self.called_twice, self.last, self.read = (
            nn.Linear(4, 4) for _ in range(4)
        )
        self.norms = nn.ModuleList(random_norm(nn.BatchNorm1d, 4, rng) for _ in range(4))
        self.batch = nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x):
        first = self.read_twice(x)
        x = self.norms[0](first) + first
        x = self.norms[1](self.called_twice(x)) + self.called_twice(x)
        x = self.norms[2](self.read(x)) * self.read.weight.sum()
        x = self.norms[3](self.norms[3](x))
        return self.batch(self.last(x))


def test_what_something_else_reads_stays_as_it_is() -> None:
    torch.manual_seed(10)
    module = Shared().double().eval()
    x = torch.randn(6, 4, dtype=torch.float64)
    fused = fuse_module(module, (x,))
    assert sorted(norms_in(fused)) == ["batch", "norms.0", "norms.1", "norms.2", "norms.3"]
    with torch.no_grad():
        torch.testing.assert_close(fused(x), module(x))


def test_hooks_keep_a_pair_apart() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    assert norms_in(fuse_module(module)) == []
    module[0].register_forward_hook(lambda part, inputs, output: 2 * output)
    assert norms_in(fuse_module(module)) == ["1"]


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_modules_that_cannot_be_fused_are_refused() -> None:
    with pytest.raises(ValueError, match="inner is in training mode; call"):
        module = Residual().eval()
        module.inner.train()
        fuse_module(module)
    with pytest.raises(ValueError, match=r"torch\.fx cannot trace it: .*control flow"):
        fuse_module(Branching().eval())
    # [N, 3, 3] into a Linear: the normalisation is over another axis than the weights
    rng = np.random.default_rng(11)
    module = nn.Sequential(nn.Linear(3, 3), random_norm(nn.BatchNorm1d, 3, rng)).double().eval()
    with pytest.raises(ValueError, match="gives another output for the example"):
        fuse_module(module, torch.randn(4, 3, 3, dtype=torch.float64))
