"""Returns that the critic learns in units of their statistics (Pop-Art)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.config import LossConfig, validated
from aclearn.config.loss import default_correctors
from aclearn.learning import make_objective
from aclearn.policies.network import load_tensors
from aclearn.types import OBSERVATION
from tests.support.architectures import altered


def learner_of(make, *, critic="v", frozen=False, rewards_by=500.0, **options):
    """A learner that normalises returns, and a batch of large rewards."""
    given = {"normalise_returns": True, "critic": critic, "separate_value": critic == "v"}
    architecture = altered(make.flat, **given)
    objective = make.objective(make.loss.model_copy(update={"normalise_returns": True}))
    if frozen:
        objective = make.replace(objective, algorithm=make.Frozen())
    batch = make.batch(architecture, 5, 4, seed=1)
    batch = make.replace(batch, rewards=rewards_by * batch.rewards - 1000.0)
    return make.learner(architecture, objective=objective, **options), batch


@pytest.mark.parametrize("exponent", [-100, -20, 60])
@pytest.mark.parametrize(
    ("kind", "critic"),
    [("actor_critic", "v"), ("actor_critic", "q"), ("ppo", "v"), ("impact", "v")],
)
@pytest.mark.parametrize("advantages", [True, False])
def test_updates_have_the_same_bits_whatever_the_unit_of_rewards(
    make, exponent, kind, advantages, critic
) -> None:
    weights = []
    for unit in (1.0, 2.0**exponent):  # a power of two changes no digit
        given = {"normalise_returns": True, "normalise_advantages": advantages, "discount": 0.9}
        loss = validated(LossConfig.model_for({"kind": kind}), {"kind": kind, **given}, "loss")
        objective = make_objective(loss, default_correctors(loss), critic=critic)
        architecture = altered(
            make.flat, normalise_returns=True, critic=critic, separate_value=critic == "v"
        )
        learner = make.learner(architecture, objective=objective)
        for seed in range(3):
            batch = make.batch(architecture, 5, 4, seed=seed)
            batch = make.replace(batch, rewards=unit * batch.rewards)
            prepared = learner.prepare(batch, learner.own_worker)
            for _ in range(2):
                report = make.update(learner, prepared)
                assert report.applied
        tensors = learner.tensors()
        for name in (f"{'value' if critic == 'v' else 'q'}.{part}" for part in ("mean", "std")):
            tensors[name] = tensors[name] / np.float32(unit)
        weights.append(tensors)
    for name, tensor in weights[0].items():
        np.testing.assert_array_equal(weights[1][name], tensor, err_msg=name)


def test_without_a_reward_nothing_is_learned_of_rounding(make) -> None:
    learner, batch = learner_of(make)
    batch = make.replace(batch, rewards=torch.zeros_like(batch.rewards))
    prepared = learner.prepare(batch, learner.own_worker)
    report = make.update(learner, prepared)
    assert report.metrics["policy_loss"] == report.metrics["value_loss"] == 0.0
    assert np.isfinite(report.metrics["gradient_norm"])


def values_of(learner, batch):
    output = learner.network.step({OBSERVATION: batch.observations[OBSERVATION].flatten(0, 1)})
    return (output.value if output.q is None else output.q).detach()


@pytest.mark.parametrize("critic", ["v", "q"])
def test_new_statistics_leave_the_values_as_they_are(make, critic) -> None:
    learner, batch = learner_of(make, critic=critic)
    for scale in (1.0, 0.01, 1e4):
        before = values_of(learner, batch)
        learner.prepare(make.replace(batch, rewards=scale * batch.rewards), learner.own_worker)
        after = values_of(learner, batch)
        size = float(learner.tensors()[f"{'value' if critic == 'v' else 'q'}.std"][0])
        assert size > 1.0
        torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5 * size)


def test_the_statistics_are_those_of_the_valid_targets_with_a_decay_of_each_batch(make) -> None:
    learner, first = learner_of(make, frozen=True)
    second = make.replace(make.batch(learner.architecture, 5, 4, seed=9), frozen=None)
    samples, weights = [], []
    for batch in (first, second):
        invalid = ~batch.valid
        poisoned = make.replace(batch, rewards=batch.rewards.masked_fill(invalid, float("nan")))
        prepared = learner.prepare(poisoned, learner.own_worker)
        targets = prepared.frozen.correction.targets
        assert not targets.isfinite().all()
        weights = [0.99 * weight for weight in weights] + [1.0] * int(batch.steps)
        samples += targets[batch.valid].tolist()
        mean = np.average(samples, weights=weights)
        std = np.average((samples - mean) ** 2, weights=weights) ** 0.5
        tensors = learner.tensors()
        assert tensors["value.mean"][0] == pytest.approx(mean, rel=1e-6)
        assert tensors["value.std"][0] == pytest.approx(std, rel=1e-6)
        # advantages of the same batch, too, are in these units
        assert prepared.frozen.correction.advantage_scale == pytest.approx(1.0 / std)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_update_is_that_of_rewards_that_are_scaled_by_hand(make, frozen) -> None:
    # with the mean at 0 the normalised problem is the original one with rewards / std
    learner, batch = learner_of(make, frozen=frozen, rewards_by=300.0)
    worker = learner.own_worker
    prepared = learner.prepare(batch, worker)
    tensors = learner.tensors()
    mean, std = (float(tensors[f"value.{name}"][0]) for name in ("mean", "std"))
    report = make.update(learner, prepared, worker=worker)

    plain = make.learner(make.flat, objective=make.objective(make.loss))
    weights = {
        name.replace("value_normalised", "value"): tensor
        for name, tensor in tensors.items()
        if name not in ("value.mean", "value.std")
    }
    load_tensors(plain.network, weights)
    # V − μ has the rewards r − (1 − γ) μ, and r − μ where the episode ends in a terminal state
    discounts = make.loss.discount * (~batch.terminated).float()
    scaled = (batch.rewards - mean * (1.0 - discounts)) / std
    expected = make.update(plain, make.replace(batch, rewards=scaled))
    twins = make.gradients(plain)
    for name, gradient in make.gradients(learner).items():
        twin = twins[name.replace("value_normalised", "value")]
        torch.testing.assert_close(gradient, twin, rtol=2e-3, atol=2e-5)
    for name in ("policy_loss", "value_loss", "entropy"):
        assert report.metrics[name] == pytest.approx(expected.metrics[name], rel=2e-3), name
