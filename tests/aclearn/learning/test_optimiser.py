"""Learning-rate schedules by arithmetic, and optimisers as configured."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.config import OptimiserConfig
from aclearn.learning import optimiser as optimiser_module
from aclearn.learning.optimiser import clip_gradients, make_optimiser, step


@pytest.mark.parametrize(
    ("learned", "rate"),
    [(0, 8e-4), (1, 7.99999e-4), (400, 4e-4), (799, 1e-6), (800, 0), (10**9, 0)],
)
def test_the_linear_schedule_falls_to_zero_and_stays_there(learned: int, rate: float) -> None:
    steps = 800 if learned != 1 else 80_000
    config = OptimiserConfig(learning_rate=8e-4, schedule="linear", schedule_steps=steps)
    assert config.rate_after(learned) == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize("learned", [0, 1, 10**12])
def test_the_constant_schedule_stays(learned: int) -> None:
    assert OptimiserConfig(learning_rate=3e-3).rate_after(learned) == 3e-3


def test_a_mean_of_n_steps_moves_as_a_sum_with_epsilon_and_start_divided_by_n_squared() -> None:
    gradients, n = torch.tensor([[0.3, -2.0], [1e-3, 0.5], [-0.7, 0.01]]), 5.0
    moved = []
    for factor, epsilon, initial in ((n, 0.1, 1.0), (1.0, 0.1 / n**2, 1.0 / n**2)):
        weight = torch.nn.Parameter(torch.zeros(2))
        config = OptimiserConfig(
            kind="rmsprop_tf", learning_rate=0.1, epsilon=epsilon, rmsprop_initial=initial
        )
        optimiser = make_optimiser([{"params": [weight]}], config)
        for gradient in gradients:
            weight.grad = factor * gradient
            optimiser.step()
        moved.append(weight.detach().clone())
    torch.testing.assert_close(*moved)
    # the second by hand: θ ← θ − lr · g / √(s + ε), where s ← 0.99 s + 0.01 g²
    alpha, square, expected = config.rmsprop_alpha, torch.full((2,), 1.0 / n**2), torch.zeros(2)
    for gradient in gradients:
        square = alpha * square + (1.0 - alpha) * gradient**2
        expected -= 0.1 * gradient / (square + 0.1 / n**2).sqrt()
    torch.testing.assert_close(moved[1], expected)


_SETTINGS = {
    "adam": {"adam_beta1": 0.8, "adam_beta2": 0.95},
    "rmsprop": {"rmsprop_alpha": 0.9},
    "rmsprop_tf": {"rmsprop_alpha": 0.9, "rmsprop_initial": 0.3},
}


def plain(kind: str, weights: list[torch.Tensor], rate: float) -> torch.optim.Optimizer:
    """Torch's optimiser with these settings; it has no TensorFlow's."""
    if kind == "adam":
        return torch.optim.Adam(weights, lr=rate, betas=(0.8, 0.95), eps=1e-2)
    return torch.optim.RMSprop(weights, lr=rate, alpha=0.9, eps=1e-2)


@pytest.mark.parametrize("readable", [True, False], ids=("read", "masked"))
@pytest.mark.parametrize("kind", ["adam", "rmsprop", "rmsprop_tf"])
def test_each_group_steps_as_torch_does_where_an_update_is_applied(
    monkeypatch, kind: str, readable: bool
) -> None:
    monkeypatch.setattr(optimiser_module, "readable", lambda device: readable)
    config = OptimiserConfig(
        **{"kind": kind, "learning_rate": 0.1, "epsilon": 1e-2, "max_grad_norm": 0.5},
        **{"schedule": "linear", "schedule_steps": 100} | _SETTINGS[kind],
    )
    first = [torch.tensor([1.0, -2.0]), torch.tensor([[0.5]])]
    ours, theirs = ([each.clone().requires_grad_() for each in first] for _ in range(2))
    groups = [{"params": ours[:1]}, {"params": ours[1:], "lr": 0.02, "max_grad_norm": 0.0}]
    optimiser = make_optimiser(groups, config)
    square = torch.full_like(theirs[0], 0.3), torch.full_like(theirs[1], 0.3)
    others = [plain(kind, [weight], 0.1) for weight in theirs]
    for learned, applied in ((0, True), (20, False), (20, True), (60, True)):
        gradients = [torch.tensor([3.0, -0.1]) + learned, torch.tensor([[7.0]])]
        if not applied:
            gradients[0][1] = float("nan")
        for weight, gradient in zip(ours, gradients, strict=True):
            weight.grad = gradient.clone()
        norm = clip_gradients(optimiser)
        rate = step(optimiser, config, applied=torch.tensor(applied), learned=torch.tensor(learned))
        assert float(rate) == pytest.approx(0.1 * (1 - learned / 100))
        if not applied:
            assert not norm.isfinite()
        else:
            # each group by its own norm
            lengths = [float(gradient.norm()) for gradient in gradients]
            assert float(norm) == pytest.approx(sum(n**2 for n in lengths) ** 0.5)
            gradients[0] *= 0.5 / lengths[0]
            for i, base in enumerate((0.1, 0.02)):
                now = base * (1 - learned / 100)
                if kind == "rmsprop_tf":
                    square[i].mul_(0.9).add_(0.1 * gradients[i] ** 2)
                    theirs[i].data -= now * gradients[i] / (square[i] + 1e-2).sqrt()
                else:
                    theirs[i].grad = gradients[i]
                    others[i].param_groups[0]["lr"] = now
                    others[i].step()
        for mine, its in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_gradients_are_clipped_as_torch_does(limit: float) -> None:
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.zeros(30)) for _ in range(2))
    ours.grad = torch.randn_like(ours)
    theirs.grad = ours.grad.clone()
    optimiser = make_optimiser([{"params": [ours]}], OptimiserConfig(max_grad_norm=limit))
    norm = clip_gradients(optimiser)
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_([theirs], limit))
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_norm_of_millions_of_numbers_keeps_its_digits() -> None:
    vector = torch.nn.Parameter(torch.zeros(3_000_000))
    vector.grad = torch.randn(3_000_000, generator=torch.Generator().manual_seed(0))
    expected = np.linalg.norm(vector.grad.numpy().astype(np.float64))
    optimiser = make_optimiser([{"params": [vector]}], OptimiserConfig(max_grad_norm=0.0))
    assert float(clip_gradients(optimiser)) == pytest.approx(expected, rel=1e-5)
