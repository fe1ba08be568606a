"""SAC's losses and their gradients against plain formulas in float64."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from aclearn.algorithms.sac import SAC, SACConfig, temperature_loss
from aclearn.config import config_of_keys
from aclearn.distributions import torch_distribution_of
from aclearn.distributions.gaussian import Gaussian
from aclearn.learning import Batch
from aclearn.policies import build_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import OBSERVATION, ActionSpec, EnvSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart
from services.policy.factory import architecture_of

T, B, GAMMA, TEMPERATURE = 3, 5, 0.9, 0.4
BOX = ActionPart(shape=(2,), dtype="float32", low=(-2.0, 0.0), high=(2.0, 1.0))
ACTIONS = ActionSpec.of((BOX,), squash=True)
ARCHITECTURE = build_architecture(
    "own",
    ObservationSpec.plain((3,), "float32"),
    ACTIONS,
    hidden=(6,),
    critic="actions",
    std_from_observations=True,
)
Weights = dict[str, Tensor]


def network(seed: int) -> PolicyNetwork:
    made, rng = PolicyNetwork(ARCHITECTURE, seed=0), np.random.default_rng(seed)
    shapes = ARCHITECTURE.tensor_shapes().items()
    load_tensors(made, {name: rng.normal(0, 0.6, s).astype("f") for name, s in shapes})
    return made


def networks(of: PolicyNetwork) -> SimpleNamespace:
    log_temperature = torch.tensor(np.log(TEMPERATURE), dtype=torch.float32, requires_grad=True)
    return SimpleNamespace(
        step=of.step,
        action_values=of.action_values,
        distribution=torch_distribution_of(ACTIONS),
        scalars={"log_temperature": log_temperature},
    )


def a_batch() -> Batch:
    """Steps of every kind; those that are not valid hold what no step may read."""
    rng = np.random.default_rng(7)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    valid, terminated = (torch.from_numpy(rng.random((T, B)) < share) for share in (0.8, 0.3))
    return Batch(
        observations={OBSERVATION: normal(T + 1, B, 3)},
        actions=normal(T, B, 2),
        behaviour_log_prob=torch.full((T, B), torch.nan),
        rewards=normal(T, B).masked_fill(~valid, torch.nan),
        terminated=terminated,
        truncated=torch.from_numpy(rng.random((T, B)) < 0.2),
        valid=valid,
        versions=np.zeros((T, B), np.int64),
        weights=normal(T, B).abs(),
    )


def dense(x: Tensor, weights: Weights, name: str) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def drawn(x: Tensor, weights: Weights, normal: Tensor) -> tuple[Tensor, Tensor]:
    """tanh of a normal number, and its log-density by the change of variables."""
    parameters = dense(dense(x, weights, "hidden.0").relu(), weights, "policy")
    mean, std = parameters[..., :2], parameters[..., 2:].exp()
    action = (mean + std * normal).tanh()
    density = (-0.5 * normal**2).exp() / (std * (2 * torch.pi) ** 0.5) / (1 - action**2)
    return action, density.log().sum(-1)


def critic(name: str, x: Tensor, action: Tensor, weights: Weights) -> Tensor:
    hidden = dense(torch.cat([x, action], -1), weights, f"{name}_hidden.0").relu()
    return dense(hidden, weights, name).squeeze(-1)


@pytest.mark.parametrize("given_discounts", [False, True])
def test_losses_and_gradients_are_those_of_the_paper(given_discounts: bool) -> None:
    batch = a_batch()
    if given_discounts:  # as a replay of several steps gives them
        batch = replace(batch, discounts=torch.rand(T, B), weights=None)
    newest, slow = network(1), network(2)
    given = networks(newest)
    found = SAC().losses(
        batch, given, networks(slow), torch.Generator().manual_seed(3), SACConfig(discount=GAMMA)
    )
    sum(each.total for each in found.values()).backward()

    same = torch.Generator().manual_seed(3)
    normals = [torch.randn(T, B, 2, generator=same).double() for _ in range(2)]
    weights, targets = (
        {name: w.detach().double().requires_grad_() for name, w in of.named_parameters()}
        for of in (newest, slow)
    )
    x, valid = batch.observations[OBSERVATION].double(), batch.valid
    # the newest policy at the observations that steps reached, the slow copies of the critics
    action, log_prob = drawn(x[1:], weights, normals[0])
    values = [critic(name, x[1:], action, targets) for name in ("value", "second_value")]
    soft = torch.minimum(*values) - TEMPERATURE * log_prob
    discounts = batch.discounts if given_discounts else GAMMA * (~batch.terminated)
    y = (batch.rewards.nan_to_num() + discounts * soft).detach()
    taken = [
        critic(name, x[:-1], batch.actions.double().tanh(), weights)
        for name in ("value", "second_value")
    ]
    scale = 1.0 if given_discounts else batch.weights
    value_loss = (0.5 * scale * sum((y - q) ** 2 for q in taken))[valid].sum()
    action, log_prob = drawn(x[:-1], weights, normals[1])
    values = [critic(name, x[:-1], action, weights) for name in ("value", "second_value")]
    policy_loss = (TEMPERATURE * log_prob - torch.minimum(*values))[valid].sum()
    log_temperature = torch.tensor(np.log(TEMPERATURE), requires_grad=True)
    adapted = (-log_temperature * (log_prob.detach() - 2.0))[valid].sum()

    expected = {
        "critics": value_loss, "policy": policy_loss, "temperature": adapted
    }  # fmt: skip
    for name, loss in expected.items():
        assert found[name].total.item() == pytest.approx(loss.item(), rel=1e-5)
    errors = found["critics"].errors
    assert errors is not None
    distances = (taken[0] - y).abs() / 2 + (taken[1] - y).abs() / 2
    torch.testing.assert_close(errors.double()[valid], distances[valid], rtol=1e-4, atol=1e-5)
    for name, weight in newest.named_parameters():
        # each loss has a gradient for its own group alone
        loss = policy_loss if name.startswith(("hidden.", "policy.")) else value_loss
        (gradient,) = torch.autograd.grad(loss, weights[name], retain_graph=True)
        torch.testing.assert_close(weight.grad.double(), gradient, rtol=1e-4, atol=1e-5)
    assert all(weight.grad is None for weight in slow.parameters())
    [gradient] = torch.autograd.grad(adapted, log_temperature)
    found_gradient = float(given.scalars["log_temperature"].grad)
    assert found_gradient == pytest.approx(float(gradient), rel=1e-5)


@pytest.mark.parametrize(("numbers", "width"), [(1, 3), (6, 17)])
def test_the_first_policy_acts_nearly_uniformly_at_random(numbers: int, width: int) -> None:
    box = replace(BOX, shape=(numbers,), low=(-1.0,) * numbers, high=(1.0,) * numbers)
    spec = EnvSpec(ObservationSpec.plain((width,), "float32"), ActionSpec.of((box,), squash=True))
    config = config_of_keys({"env.id": "a", "loss.kind": "sac"})
    first = PolicyNetwork(architecture_of(config, spec), seed=1)
    seen = 3.0 * torch.randn(1000, width, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        parameters = first.step({OBSERVATION: seen}).parameters.numpy()
    # KL(π ‖ uniform): the uniform density between -1 and 1 is ½ for each number
    divergence = numbers * np.log(2.0) - Gaussian(spec.action).entropy(parameters)
    assert (divergence < 0.03 * numbers).all()


def test_the_temperature_rises_while_the_entropy_is_below_its_target() -> None:
    for entropy, rises in ((-3.0, True), (-1.0, False)):
        log_temperature = torch.zeros((), requires_grad=True)
        temperature_loss(log_temperature, torch.tensor(-entropy), -2.0).backward()
        assert (log_temperature.grad < 0) == rises
