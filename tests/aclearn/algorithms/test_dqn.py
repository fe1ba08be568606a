"""The loss of DQN against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.algorithms.dqn import DQN, DQNConfig
from aclearn.learning import Batch
from aclearn.learning.networks import Networks
from aclearn.policies import build_architecture
from aclearn.types import OBSERVATION, ObservationSpec

B, ACTIONS = 6, 3
CPU = torch.device("cpu")
ARCHITECTURE = build_architecture(
    "q", ObservationSpec.plain((4,), "float32"), ACTIONS, hidden=(8,), critic="dueling"
)


def networks(seed: int) -> Networks:
    made = Networks(ARCHITECTURE, device=CPU)
    generator = torch.Generator().manual_seed(seed)
    made.copy([torch.randn(p.shape, generator=generator) for p in made.parameters])
    return made


def values_of(made: Networks, seen: torch.Tensor) -> np.ndarray:
    """Q `[B, A]` by the weights, layer by layer."""
    weights = {name: p.detach().double().numpy() for name, p in made.network.named_parameters()}

    def dense(name: str, x: np.ndarray) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    hidden = np.maximum(dense("hidden.0", seen.double().numpy()), 0.0)
    advantages = dense("advantages", hidden)
    return dense("state_value", hidden) + advantages - advantages.mean(1, keepdims=True)


def replayed(rng: np.random.Generator, *, masked: bool, weighted: bool) -> Batch:
    def floats(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    terminated = torch.from_numpy(rng.random((1, B)) < 0.4)
    masks = torch.from_numpy(rng.random((2, B, ACTIONS)) < 0.5)
    masks[..., 1] = True
    return Batch(
        observations={OBSERVATION: floats(2, B, 4)},
        actions=torch.from_numpy(rng.integers(0, ACTIONS, (1, B))),
        behaviour_log_prob=floats(1, B),
        rewards=3 * floats(1, B),
        terminated=terminated,
        truncated=torch.zeros_like(terminated),
        valid=torch.ones_like(terminated),
        versions=np.zeros((1, B), np.int64),
        masks=masks if masked else None,
        discounts=torch.from_numpy(rng.uniform(0.8, 1.0, (1, B)).astype(np.float32)) * ~terminated,
        weights=floats(1, B).abs() if weighted else None,
    )


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_error_is_that_of_the_best_value_behind_the_step(double: bool, masked: bool) -> None:
    rng = np.random.default_rng(5)
    newest, slow = networks(1), networks(2)
    batch = replayed(rng, masked=masked, weighted=not masked)
    config = DQNConfig(kind="dqn", double=double, huber_delta=0.7)
    sums = DQN().losses(batch, newest, slow, torch.Generator(), config)["all"]

    first, reached = batch.observations[OBSERVATION]
    value = values_of(newest, first)[np.arange(B), batch.actions[0]]
    behind = values_of(slow, reached)
    preferred = values_of(newest, reached) if double else behind
    if masked:
        preferred = np.where(batch.masks[1], preferred, -np.inf)
    best = behind[np.arange(B), preferred.argmax(1)]
    error = batch.rewards[0].numpy() + batch.discounts[0].numpy() * best - value
    size = np.abs(error)
    loss = np.where(size < 0.7, error**2 / 2, 0.7 * (size - 0.35))
    weights = np.ones(B) if masked else batch.weights[0].numpy()
    np.testing.assert_allclose(sums.errors[0], error, rtol=1e-4, atol=1e-5)
    assert float(sums.total.detach()) == pytest.approx((weights * loss).sum(), rel=1e-4)
    assert float(sums.metrics["q_mean"].detach()) == pytest.approx(value.sum(), rel=1e-4)

    # the gradient is of the value alone: −w · clip(error) of each step
    sums.total.backward()
    given = newest.network.state_value.bias.grad
    assert float(given) == pytest.approx(-(weights * error.clip(-0.7, 0.7)).sum(), rel=1e-4)
    assert all(parameter.grad is None for parameter in slow.parameters)
