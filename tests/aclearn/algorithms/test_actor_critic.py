"""The loss by hand, and no effect of an invalid step."""

from __future__ import annotations

import math

import pytest
import torch

from aclearn.algorithms import LossSums, Outputs
from aclearn.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from aclearn.distributions.torch_categorical import TorchCategorical
from aclearn.learning.batch import Batch
from correctors import Correction


def actor_critic(
    *, parameters, actions, values, targets, advantages, valid, value_cost, entropy_cost
) -> LossSums:
    policy = TorchCategorical(parameters)
    log_probs = policy.log_prob(actions)
    zeros = torch.zeros_like(values)
    no = torch.zeros_like(valid)
    batch = Batch(
        observations={}, actions=actions, behaviour_log_prob=zeros, rewards=zeros,
        terminated=no, truncated=no, valid=valid, versions=no.numpy(),
    )  # fmt: skip
    return ActorCritic()(
        batch,
        Outputs(policy, log_probs, values, log_probs.detach(), values.detach()),
        Correction(targets, advantages, torch.ones_like(advantages)),
        ActorCriticConfig(value_cost=value_cost, entropy_cost=entropy_cost),
    )


def test_the_loss_is_the_sum_that_one_gets_by_hand() -> None:
    # T = 2, B = 1, A = 2; probabilities (1/4, 3/4) and (1/2, 1/2); actions 1 and 0
    loss = actor_critic(
        parameters=torch.log(torch.tensor([[[0.25, 0.75]], [[0.5, 0.5]]])),
        actions=torch.tensor([[1], [0]]),
        values=torch.tensor([[1.0], [-2.0]]),
        targets=torch.tensor([[3.0], [-1.0]]),
        advantages=torch.tensor([[2.0], [-4.0]]),
        valid=torch.ones(2, 1, dtype=torch.bool),
        value_cost=0.5,
        entropy_cost=0.1,
    )
    policy = -2 * math.log(0.75) + 4 * math.log(0.5)
    value = 0.5 * 4 + 0.5 * 1
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)) + math.log(2)
    assert {name: float(value) for name, value in loss.metrics.items()} == {
        "policy_loss": pytest.approx(policy),
        "value_loss": pytest.approx(value),
        "entropy": pytest.approx(entropy),
    }
    assert float(loss.total) == pytest.approx(policy + 0.5 * value - 0.1 * entropy)


def _inputs(seed: int, valid: torch.Tensor) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    T, B = valid.shape

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "logits": normal(T, B, 3).requires_grad_(),
        "values": normal(T, B).requires_grad_(),
        "targets": normal(T, B),
        "advantages": normal(T, B),
        "valid": valid,
    }


def _loss_and_gradients(
    inputs: dict[str, torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    loss = actor_critic(
        parameters=inputs["logits"],
        actions=torch.ones_like(inputs["valid"], dtype=torch.int64),
        values=inputs["values"],
        targets=inputs["targets"],
        advantages=inputs["advantages"],
        valid=inputs["valid"],
        value_cost=0.7,
        entropy_cost=0.3,
    )
    logits_grad, values_grad = torch.autograd.grad(loss.total, [inputs["logits"], inputs["values"]])
    return loss.total.detach(), logits_grad, values_grad


@pytest.mark.parametrize("junk", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("where", ["targets", "advantages"])
def test_whatever_stands_at_an_invalid_step_changes_neither_loss_nor_gradient(
    where: str, junk: float
) -> None:
    valid = torch.tensor([[True, False], [True, True], [False, True]])
    inputs = _inputs(2, valid)
    clean = _loss_and_gradients(inputs)
    inputs[where] = torch.where(valid, inputs[where], torch.tensor(junk))
    spoilt = _loss_and_gradients(inputs)
    for before, after in zip(clean, spoilt, strict=True):
        assert torch.isfinite(after).all()
        torch.testing.assert_close(after, before, rtol=0, atol=0)
