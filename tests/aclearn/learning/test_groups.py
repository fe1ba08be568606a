"""An algorithm of three optimiser groups against plain torch: SAC's parts in small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aclearn.algorithms import Algorithm, Group, LossSums, TargetCopies
from aclearn.config import LossConfig, OptimiserConfig
from aclearn.errors import ConfigError
from aclearn.learning import Batch, Learner
from aclearn.learning.surrogate import Objective
from aclearn.types import OBSERVATION
from tests.support.warm_ups import WarmUps

GAMMA, RATE, WEIGHT_COST = 0.9, 0.25, 0.3
#: Of `make.flat`, whose value has hidden layers of its own.
POLICY, CRITIC = ("hidden.", "policy."), ("value_hidden.", "value.")


class Small(Algorithm):
    """A critic of noisy one-step targets, a policy with an entropy of learned weight."""

    def groups(self, config: Any) -> dict[str, Group]:
        return {
            "critic": Group(CRITIC, learning_rate=0.02, max_grad_norm=0.1),
            "policy": Group(),  # of the weights that no longer prefix names
            "weight": Group(("log_weight",), learning_rate=0.05, max_grad_norm=0.0),
        }

    def scalars(self, config: Any) -> dict[str, float]:
        return {"log_weight": -1.0}

    def targets(self, config: Any) -> TargetCopies:
        return TargetCopies(rate=RATE, names=CRITIC)

    def losses(self, batch, networks, targets, rng, config) -> dict[str, LossSums]:
        length = len(batch.actions)
        leaves = {name: leaf.flatten(0, 1) for name, leaf in batch.observations.items()}
        output = networks.step(leaves)
        with torch.no_grad():
            noise = torch.randn(batch.rewards.shape, generator=rng)
            following = targets.step(leaves).value.view(length + 1, -1)[1:]
            wanted = batch.rewards + GAMMA * following * ~batch.terminated + noise
        values = output.value.view(length + 1, -1)[:-1]
        policy = networks.distribution(output.parameters.unflatten(0, (length + 1, -1))[:-1])
        errors = wanted - values
        weight = networks.scalars["log_weight"].exp()
        gain = policy.log_prob(batch.actions) * errors.detach()
        entropy = policy.entropy()
        sums = [
            batch.of_valid(each).sum()
            for each in (
                errors.square(),
                -gain - weight.detach() * entropy,
                weight * (entropy.detach() - WEIGHT_COST),
            )
        ]
        return {
            name: LossSums(total, {f"{name}_loss": total.detach()}, sizes)
            for (name, sizes), total in zip(
                (("critic", errors.detach().abs()), ("policy", None), ("weight", None)),
                sums,
                strict=True,
            )
        }


def learner_of(make, seed: int = 4) -> Learner:
    return make.learner(
        make.flat,
        objective=Objective(Small(), LossConfig()),
        optimiser=OptimiserConfig(learning_rate=0.01, max_grad_norm=0.0, epsilon=1e-3),
        seed=seed,
    )


def batches_of(make) -> list[Batch]:
    return [make.batch(make.flat, 4, 3, seed=seed) for seed in range(6)]


class Plain:
    """The same by hand: three optimisers, and a dictionary of slow weights."""

    def __init__(self, learner: Learner) -> None:
        self.weights = {
            name: torch.from_numpy(array).double().requires_grad_()
            for name, array in learner.tensors().items()
        }
        self.log_weight = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
        self.slow = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.rng = torch.Generator().manual_seed(4)
        adam = {"betas": (0.9, 0.999), "eps": 1e-3}
        self.critic = torch.optim.Adam(self.of(CRITIC), lr=0.02, **adam)
        self.policy = torch.optim.Adam(self.of(POLICY), lr=0.01, **adam)
        self.weight = torch.optim.Adam([self.log_weight], lr=0.05, **adam)

    def of(self, names: tuple[str, ...]) -> list[Tensor]:
        return [weight for name, weight in self.weights.items() if name.startswith(names)]

    def value(self, x: Tensor, weights: dict[str, Tensor]) -> Tensor:
        hidden = x @ weights["value_hidden.0.weight"].T + weights["value_hidden.0.bias"]
        return (hidden.tanh() @ weights["value.weight"].T + weights["value.bias"]).squeeze(-1)

    def learn(self, batch: Batch) -> Tensor:
        """One update; the sizes of the errors."""
        x, valid, w = batch.observations[OBSERVATION].double(), batch.valid, self.weights
        noise = torch.randn(batch.rewards.shape, generator=self.rng).double()
        following = self.value(x[1:], self.slow)
        wanted = batch.rewards + GAMMA * following * ~batch.terminated + noise
        hidden = (x[:-1] @ w["hidden.0.weight"].T + w["hidden.0.bias"]).tanh()
        log_probs = (hidden @ w["policy.weight"].T + w["policy.bias"]).log_softmax(-1)
        errors = wanted.detach() - self.value(x[:-1], w)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        taken = log_probs.gather(-1, batch.actions[..., None])[..., 0]
        weight = self.log_weight.exp()
        for optimiser, loss, limit in (
            (self.critic, errors.square(), 0.1),
            (self.policy, -taken * errors.detach() - weight.detach() * entropy, None),
            (self.weight, weight * (entropy.detach() - WEIGHT_COST), None),
        ):
            optimiser.zero_grad()
            loss[valid].mean().backward()
            if limit is not None:
                torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], limit)
            optimiser.step()
        for name, newest in self.weights.items():
            self.slow[name] = (1 - RATE) * self.slow[name] + RATE * newest.detach()
        return errors.detach().abs()


@pytest.mark.parametrize("graph", [False, True], ids=("read", "in a graph"))
def test_each_group_learns_as_a_plain_optimiser_of_its_own(make, monkeypatch, graph) -> None:
    learner = learner_of(make)
    worker = None
    if graph:
        worker = learner.make_worker(captured=WarmUps())
        for module in ("decisions", "optimiser"):
            monkeypatch.setattr(f"aclearn.learning.{module}.readable", lambda device: False)
    plain = Plain(learner)
    for batch in batches_of(make):
        reports = learner.learn(batch, worker)
        expected = plain.learn(batch)
        torch.testing.assert_close(
            reports[-1].errors[batch.valid].double(),
            expected[batch.valid],
            rtol=1e-3,
            atol=1e-4,
        )
    for name, array in learner.tensors().items():
        np.testing.assert_allclose(
            array, plain.weights[name].detach(), rtol=1e-3, atol=1e-4, err_msg=name
        )
    saved = learner.state_tensors()
    assert float(saved["scalars/log_weight"]) == pytest.approx(plain.log_weight.item(), rel=1e-4)
    assert {name for name in saved if name.startswith("target/")} == {
        f"target/{name}" for name in plain.weights if name.startswith(CRITIC)
    }
    for name in ("value.weight", "value_hidden.0.bias"):
        np.testing.assert_allclose(saved[f"target/{name}"], plain.slow[name], rtol=1e-3, atol=1e-4)


def test_a_checkpoint_has_scalars_copies_and_random_numbers(make) -> None:
    whole, first, second = (learner_of(make, seed) for seed in (4, 4, 5))
    batches = batches_of(make)
    for batch in batches:
        whole.learn(batch)
    for batch in batches[:3]:
        first.learn(batch)
    second.load_state_tensors(first.state_tensors())
    for batch in batches[3:]:
        second.learn(batch)
    expected = whole.state_tensors()
    for name, array in second.state_tensors().items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_errors_are_those_of_each_step_s_last_update_in_the_order_of_the_batch(make) -> None:
    learner, [batch, *_] = learner_of(make), batches_of(make)
    batch = make.replace(batch, valid=torch.ones_like(batch.valid))
    found = [report.errors for report in learner.learn(batch, minibatches=3, epochs=2)]
    assert [errors is None for errors in found] == [True, True, False, False, False, False]
    for number in (3, 4, 5):
        changed = (found[number] != found[number - 1]).any(0).tolist()
        assert changed == [column == number - 3 for column in range(3)]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"critic": Group(CRITIC)}, r"0 of its groups \(critic\) name the weight hidden"),
        (
            {"all": Group(), "critic": Group(CRITIC), "value": Group(("value.",))},
            r"2 of its groups \(all, critic, value\) name the weight value.weight",
        ),
    ],
)
def test_a_weight_is_in_one_group(make, monkeypatch, groups, words) -> None:
    monkeypatch.setattr(Small, "groups", lambda self, config: groups)
    with pytest.raises(ConfigError, match=words):
        learner_of(make)
