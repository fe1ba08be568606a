"""HDDPG's update against plain functions in float64: targets, both gradients, soft updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from aclearn.algorithms.ddpg import DDPGConfig
from aclearn.config import CorrectorConfig, OptimiserConfig
from aclearn.learning import Batch, Learner, make_objective
from aclearn.policies import build_architecture
from aclearn.types import OBSERVATION, ActionSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart

T, B, STEPS, GAMMA, RATE = 6, 5, 3, 0.9, 0.25
BOX = ActionPart(shape=(2,), dtype="float32", low=(-2.0, 0.0), high=(2.0, 1.0))
ACTIONS = ActionSpec.of((BOX,), squash=True)
ARCHITECTURE = build_architecture(
    "mlp",
    ObservationSpec.plain((3,), "float32"),
    ACTIONS,
    hidden=(7, 4),
    activation="tanh",
    critic="action",
)
Weights = dict[str, Tensor]


@pytest.fixture
def learner() -> Learner:
    config = DDPGConfig(discount=GAMMA, target_update_rate=RATE)
    chain = [CorrectorConfig.model_validate({"n_step": {"steps": STEPS}})]
    made = Learner(
        ARCHITECTURE,
        objective=make_objective(config, chain),
        optimiser=OptimiserConfig(learning_rate=0.05, max_grad_norm=0.0),
        device=torch.device("cpu"),
        seed=4,
    )
    weights = {f"weights/{name}": array for name, array in made.tensors().items()}
    weights["weights/policy_mean.weight"] *= 100.0  # actions that are not all near 0
    made.load_state_tensors(weights)
    return made


@pytest.fixture
def batch(make) -> Batch:
    rng = np.random.default_rng(7)
    given = make.batch(ARCHITECTURE, T, B, seed=1)
    actions = torch.from_numpy(rng.normal(size=(T, B, 2)).astype(np.float32))
    return replace(given, actions=actions, behaviour_log_prob=torch.zeros(T, B))


def dense(x: Tensor, weights: Weights, name: str) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def policy(x: Tensor, weights: Weights) -> Tensor:
    """μ(x), between -1 and 1."""
    for i in range(2):
        x = dense(x, weights, f"hidden.{i}").tanh()
    return dense(x, weights, "policy_mean").tanh()


def critic(x: Tensor, action: Tensor, weights: Weights) -> Tensor:
    """Q(x, a)."""
    x = torch.cat([x, action], -1)
    for i in range(2):
        x = dense(x, weights, f"value_hidden.{i}").tanh()
    return dense(x, weights, "value").squeeze(-1)


def doubles(learner: Learner) -> Weights:
    named = learner.network.named_parameters()
    return {name: weight.detach().double().requires_grad_() for name, weight in named}


def expected_targets(batch: Batch, weights: Weights) -> Tensor:
    """The n-step returns, one after another."""
    x = batch.observations[OBSERVATION].double()
    values = critic(x, policy(x, weights), weights).detach()
    targets = torch.zeros(T, B, dtype=torch.float64)
    for t in range(T):
        for b in range(B):
            scale, last = 1.0, min(t + STEPS, T) - 1
            for u in range(t, last + 1):
                targets[t, b] += scale * batch.rewards[u, b]
                scale *= GAMMA
                if batch.terminated[u, b]:
                    break
                if batch.truncated[u, b] or u == last:
                    targets[t, b] += scale * values[u + 1, b]
                    break
    return targets


def test_one_update_is_the_deterministic_policy_gradient(
    make, learner: Learner, batch: Batch
) -> None:
    weights, valid = doubles(learner), batch.valid
    targets = expected_targets(batch, weights)
    x = batch.observations[OBSERVATION][:-1].double()
    errors = targets - critic(x, batch.actions.double().tanh(), weights)
    value_loss = (0.5 * errors.square())[valid].mean()
    policy_loss = -critic(x, policy(x, weights), weights)[valid].mean()

    worker = learner.make_worker()
    prepared = learner.prepare(batch, worker)
    assert prepared.frozen is not None
    torch.testing.assert_close(prepared.frozen.correction.targets.double()[valid], targets[valid])
    report = make.update(learner, prepared, worker=worker)

    assert report.metrics["value_loss"] == pytest.approx(value_loss.item(), rel=1e-5)
    assert report.metrics["policy_loss"] == pytest.approx(policy_loss.item(), rel=1e-5)
    assert report.metrics["rho_mean"] == report.metrics["effective_sample_share"] == 1.0
    gradients = make.gradients(learner)
    for name, weight in learner.network.named_parameters():
        # the policy climbs Q, and the critic learns from the actions taken alone
        of_policy = name.startswith(("hidden.", "policy_mean."))
        if name == "policy.log_std":
            assert not gradients[name].any()
            assert weight.tolist() == pytest.approx(np.log([0.01, 0.01]))
            continue
        loss = policy_loss if of_policy else value_loss
        (expected,) = torch.autograd.grad(loss, weights[name], retain_graph=True)
        torch.testing.assert_close(gradients[name].double(), expected, rtol=1e-4, atol=1e-6)


def test_targets_are_of_the_networks_that_follow_slowly(
    make, learner: Learner, batch: Batch
) -> None:
    worker = learner.make_worker()
    followers = {name: weight.detach() for name, weight in doubles(learner).items()}
    for _ in range(3):
        prepared = learner.prepare(batch, worker)
        assert prepared.frozen is not None
        found = prepared.frozen.correction.targets.double()
        expected = expected_targets(batch, followers)
        torch.testing.assert_close(found[batch.valid], expected[batch.valid], rtol=1e-4, atol=1e-5)
        make.update(learner, prepared, worker=worker)
        for name, newest in doubles(learner).items():
            followers[name] = RATE * newest.detach() + (1.0 - RATE) * followers[name]
    saved = learner.state_tensors()
    for name, expected in followers.items():
        np.testing.assert_allclose(saved[f"target/{name}"], expected, rtol=1e-5, atol=1e-7)
    assert not np.allclose(saved["target/value.weight"], saved["weights/value.weight"])


def test_single_steps_of_several_threads_give_the_same_gradient(
    learner: Learner, batch: Batch
) -> None:
    worker = learner.make_worker()
    prepared = learner.prepare(batch, worker)
    learner.differentiate(prepared, worker)
    whole = [None if g is None else g.clone() for g in worker.gradients()]
    steps = batch.valid.flatten().nonzero().flatten()
    learner.differentiate(prepared.single_steps(steps), worker)
    for one, other in zip(whole, worker.gradients(), strict=True):
        torch.testing.assert_close(one, other)
