"""Learning-rate schedules by arithmetic, and optimisers as configured."""

from __future__ import annotations

import pytest
import torch

from aclearn.config import OptimiserConfig
from aclearn.learning import learning_rate, make_optimiser
from aclearn.learning.optimiser import clip_gradients


@pytest.mark.parametrize(
    ("learned", "rate"),
    [(0, 8e-4), (1, 7.99999e-4), (400, 4e-4), (799, 1e-6), (800, 0), (10**9, 0)],
)
def test_the_linear_schedule_falls_to_zero_and_stays_there(learned: int, rate: float) -> None:
    steps = 800 if learned != 1 else 80_000
    config = OptimiserConfig(learning_rate=8e-4, schedule="linear", schedule_steps=steps)
    assert learning_rate(config, learned) == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize("learned", [0, 1, 10**12])
def test_the_constant_schedule_stays(learned: int) -> None:
    assert learning_rate(OptimiserConfig(learning_rate=3e-3), learned) == 3e-3


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
def test_gradients_are_clipped_and_applied_by_adam_bit_for_bit_as_torch_does(limit: float) -> None:
    torch.manual_seed(0)
    shapes = [(5, 3), (5,), (2, 5), ()]
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    config = OptimiserConfig(kind="adam", learning_rate=0.01)
    adam = make_optimiser(ours, config)
    options = {"betas": (config.adam_beta1, config.adam_beta2), "eps": config.epsilon}
    reference = torch.optim.Adam(theirs, lr=0.01, fused=True, **options)
    for step in range(4):
        for mine, its in zip(ours, theirs, strict=True):
            # the last one has a gradient in later steps only
            mine.grad = torch.randn_like(mine) if step > 1 or mine.ndim else None
            its.grad = None if mine.grad is None else mine.grad.clone()
        norm = clip_gradients(ours, limit)
        assert norm == float(torch.nn.utils.clip_grad_norm_(theirs, limit))
        adam.step()
        reference.step()
        for mine, its in zip(ours, theirs, strict=True):
            assert torch.equal(mine, its)
