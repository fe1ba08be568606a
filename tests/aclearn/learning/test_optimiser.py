"""Learning-rate schedules by arithmetic, and optimisers as configured."""

from __future__ import annotations

import pytest
import torch

from aclearn.config import OptimiserConfig
from aclearn.learning import make_optimiser
from aclearn.learning.optimiser import clip_gradients


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
        optimiser = make_optimiser([weight], config)
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


def test_adam_gets_every_number_of_the_configuration() -> None:
    config = OptimiserConfig(learning_rate=0.02, adam_beta1=0.8, adam_beta2=0.95, epsilon=1e-4)
    optimiser = make_optimiser([torch.nn.Parameter(torch.zeros(2))], config)
    assert isinstance(optimiser, torch.optim.Adam)
    [group] = optimiser.param_groups
    assert (group["lr"], group["betas"], group["eps"]) == (0.02, (0.8, 0.95), 1e-4)
    assert group["weight_decay"] == 0


def test_rmsprop_gets_every_number_of_the_configuration() -> None:
    config = OptimiserConfig(kind="rmsprop", learning_rate=0.02, rmsprop_alpha=0.9, epsilon=0.01)
    optimiser = make_optimiser([torch.nn.Parameter(torch.zeros(2))], config)
    assert isinstance(optimiser, torch.optim.RMSprop)
    [group] = optimiser.param_groups
    assert (group["lr"], group["alpha"], group["eps"]) == (0.02, 0.9, 0.01)
    assert (group["momentum"], group["weight_decay"], group["centered"]) == (0, 0, False)


@pytest.mark.parametrize("limit", [0.5, 100.0, float("inf")])
def test_gradients_are_clipped_bit_for_bit_as_torch_does(limit: float) -> None:
    torch.manual_seed(0)
    shapes: list[tuple[int, ...]] = [(5, 3), (5,), (2, 5), ()]
    ours = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
    theirs = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
    for mine, its in zip(ours[:-1], theirs, strict=False):  # the last one has no gradient
        mine.grad = torch.randn_like(mine)
        its.grad = mine.grad.clone()
    norm = clip_gradients(ours, limit)
    assert norm == float(torch.nn.utils.clip_grad_norm_(theirs, limit))
    for mine, its in zip(ours[:-1], theirs, strict=False):
        assert torch.equal(mine.grad, its.grad)
