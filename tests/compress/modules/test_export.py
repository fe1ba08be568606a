"""Modules of a user's own as ONNX models, by torch's exporter."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from compress import ChainError
from compress.modules.export import export_module
from compress.modules.pruning import prune_module

torch.manual_seed(0)


class Residual(nn.Module):
    """A branch with a sum, and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.policy = nn.Linear(6 * 8 * 8, 5)
        self.value = nn.Linear(6 * 8 * 8, 1)

    def forward(self, x):
        x = torch.relu(self.first(x.float() / 255))
        x = torch.relu(x + self.norm(self.second(x))).flatten(1)
        return self.policy(x), self.value(x).squeeze(1)


def images(count: int, shape=(2, 8, 8), seed=1) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, (count, *shape), np.uint8))


def run(model: bytes, **feeds) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.fixture
def residual() -> Residual:
    module = Residual()
    with torch.no_grad():
        module.norm.running_mean.normal_()
        module.norm.running_var.uniform_(0.5, 2)
    return module


def test_a_module_of_one_s_own_becomes_a_model_for_any_batch(residual) -> None:
    model = export_module(residual.train(), images(4), outputs=["logits", "values"])
    assert residual.training and residual.norm.training
    residual.eval()
    for count in (1, 4, 9):
        x = images(count, seed=count)
        logits, values = run(model, observation=x.numpy())
        with torch.no_grad():
            expected = residual(x)
        np.testing.assert_allclose(logits, expected[0].numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(values, expected[1].numpy(), rtol=1e-4, atol=1e-5)


def test_a_pruned_module_is_exported_too(residual) -> None:
    pytest.importorskip("torch_pruning")
    residual.eval()
    pruned = prune_module(residual, images(2).float(), 0.5, ignored=["policy", "value"])
    model = export_module(pruned, images(2))
    assert len(model) < 0.6 * len(export_module(residual, images(2)))
    x = images(3, seed=7)
    with torch.no_grad():
        expected = pruned.eval()(x)[0].numpy()
    np.testing.assert_allclose(run(model, observation=x.numpy())[0], expected, rtol=1e-3, atol=1e-5)


class Calls(nn.Module):
    """Calls a function of its input."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "example", "reason"),
    [
        (
            lambda x: x * 2 if x.shape[0] == 4 else x,
            torch.ones(4, 2),
            r"differs from torch in output 0 on 6 rows \(does it branch",
        ),
        (lambda x: x.reshape(4, 2), torch.ones(4, 2), "Calls: it does not run on 6 rows"),
        # a batch size that is a constant to the exporter, whatever the example has
        (lambda x: x.reshape(int(x.shape[0]), -1) * 2, torch.ones(1, 2, 2), " 3 rows"),
        (lambda x: x.reshape(int(x.shape[0]), -1) * 2, torch.ones(3, 2, 2), "compute 5 rows"),
        (torch.sqrt, torch.tensor([[-1.0, 2.0]]), "differs from torch in output 0 on 1 rows"),
        (
            lambda x: torch.linalg.lstsq(x, x).solution,
            torch.eye(3)[None],
            "Calls: torch cannot export it",
        ),
        (lambda x: [{"logits": x}], torch.ones(2, 2), "expected a tensor or a tuple of tensors"),
    ],
    ids=["branches", "one batch size", "frozen 1", "frozen 3", "nan", "exotic", "dictionary"],
)
def test_a_module_that_is_another_as_a_model_is_refused(function, example, reason) -> None:
    with pytest.raises(ChainError, match=reason):
        export_module(Calls(function), example)


def test_equal_infinities_are_no_difference() -> None:
    x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    masks = Calls(lambda x: torch.where(x > 0, x, torch.tensor(float("-inf"))))
    np.testing.assert_array_equal(
        run(export_module(masks, x), observation=x.numpy())[0], [[-np.inf, 2.0], [3.0, -np.inf]]
    )


@pytest.mark.parametrize(
    "example",
    [torch.ones(0, 2), torch.tensor(1.0), (torch.ones(2, 2), torch.ones(3, 2)), ()],
    ids=["empty", "number", "uneven", "none"],
)
def test_an_example_without_rows_of_one_number_is_refused(example) -> None:
    with pytest.raises(ChainError, match="Linear: example: expected inputs of one number of rows"):
        export_module(nn.Linear(2, 2), example)


def test_names_must_be_as_many_as_tensors(residual) -> None:
    with pytest.raises(ChainError, match=r"expected 2 names of outputs, got 1: \['logits'\]"):
        export_module(residual, images(2), outputs=["logits"])
