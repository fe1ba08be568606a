"""A batch for PPO and IMPACT: its frozen targets, its gradient, the target network."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.algorithms.impact import IMPACTConfig
from aclearn.algorithms.ppo import PPOConfig
from aclearn.config import OptimiserConfig
from aclearn.config.loss import default_correctors
from aclearn.learning import Batch, make_objective
from aclearn.learning import gradient_worker as gradient_module
from aclearn.learning.surrogate import standardised
from aclearn.learning.target_network import TargetNetwork
from correctors import Correction
from tests.support.architectures import altered

OPTIMISER = OptimiserConfig(learning_rate=0.05, max_grad_norm=0.0)
T, B = 6, 4


def learner_of(make, config: PPOConfig):
    objective = make_objective(config, default_correctors(config))
    return make.learner(make.flat, objective=objective, optimiser=OPTIMISER)


def gae(batch: Batch, values: np.ndarray, discount: float, lambda_: float) -> np.ndarray:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16), as a sum for each step."""
    advantages = np.zeros((T, B))
    for b in range(B):
        for s in range(T):
            factor = 1.0
            for t in range(s, T):
                terminated = bool(batch.terminated[t, b])
                reached = 0.0 if terminated else discount * values[t + 1, b]
                advantages[s, b] += factor * (float(batch.rewards[t, b]) + reached - values[t, b])
                factor *= discount * lambda_
                if terminated or bool(batch.truncated[t, b]):
                    break
    return advantages


@pytest.mark.parametrize("normalised", [True, False])
def test_on_policy_the_frozen_targets_are_those_of_gae(make, normalised) -> None:
    config = PPOConfig(discount=0.9, normalise_advantages=normalised)
    learner = learner_of(make, config)
    batch = make.batch(make.flat, T, B, seed=2)
    log_probs, (_, values) = make.taken(learner, batch), make.outputs(learner, batch)
    batch = make.replace(batch, behaviour_log_prob=log_probs)
    frozen = learner.prepare(batch, learner.own_worker).frozen
    # PPO's usual λ is 0.95
    expected = gae(batch, values.double().numpy(), 0.9, 0.95)
    valid = batch.valid.numpy()
    close = {"rtol": 1e-4, "atol": 1e-5}
    targets = expected + values[:-1].numpy()
    np.testing.assert_allclose(frozen.correction.targets[valid], targets[valid], **close)
    if normalised:
        expected = (expected - expected[valid].mean()) / expected[valid].std()
    advantages = frozen.correction.weighted_advantages
    np.testing.assert_allclose(advantages[valid], expected[valid], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(frozen.correction.weights, 1.0, **close)
    np.testing.assert_allclose(frozen.values, values[:-1], **close)


def test_advantages_are_standardised_over_the_steps_that_are_learned() -> None:
    nan = float("nan")
    valid = torch.tensor([[True, False, True], [True, True, True]])
    kept = torch.tensor([[True, True, True], [True, True, False]])
    correction = Correction(
        torch.zeros(2, 3),
        torch.tensor([[1.0, nan, 3.0], [5.0, 7.0, 1e30]]),
        torch.ones(2, 3),
        kept,
    )
    made = standardised(correction, valid)
    of_steps = made.weighted_advantages[valid & kept]
    np.testing.assert_allclose(of_steps, np.array([-3, -1, 1, 3]) / 5**0.5, rtol=1e-6)
    # equal ones have no direction
    equal = Correction(torch.zeros(2, 3), torch.full((2, 3), 1000.1), torch.ones(2, 3))
    assert not standardised(equal, valid).weighted_advantages.any()


@pytest.mark.parametrize("config", [PPOConfig(value_clip=0.2), IMPACTConfig(entropy_cost=0.1)])
def test_chunks_of_a_batch_add_up_to_its_gradient(make, monkeypatch, config) -> None:
    gradients = []
    for chunk in (320, 5):
        monkeypatch.setattr(gradient_module, "CHUNK_SAMPLES", chunk)
        learner = learner_of(make, config)
        batch = make.batch(make.flat, T, B, seed=3)
        for report in learner.learn(batch, minibatches=2, epochs=2):
            gradients.append((make.gradient(learner), report.metrics["proximal_kl"]))
    assert gradients[0][1] == pytest.approx(0.0, abs=1e-4) or config.kind == "impact"
    for whole, parts in zip(gradients[:4], gradients[4:], strict=True):
        torch.testing.assert_close(parts[0], whole[0], rtol=1e-3, atol=1e-5)
        assert parts[1] == pytest.approx(whole[1], rel=1e-3, abs=1e-6)


def test_the_target_network_goes_its_share_of_the_way_every_so_many_updates() -> None:
    weights = {"value.weight": torch.tensor([1.0, 2.0]), "policy.bias": torch.tensor(3.0)}
    applied = torch.tensor(True)
    target = TargetNetwork(weights, every=2, rate=0.25, names=("value.",))
    weights["value.weight"].add_(4.0)
    weights["policy.bias"].add_(1.0)
    # without a copy it is the newest
    for refused, expected in ((True, [1, 2]), (False, [1, 2]), (True, [1, 2]), (False, [2, 3])):
        target.follow(applied ^ refused)
        assert [each.tolist() for each in target.weights] == [expected, 4.0]
    assert list(target.copies) == ["value.weight"]
    copies = TargetNetwork({"a": (newest := torch.zeros(1))}, every=1, rate=1.0)
    newest.fill_(0.1)
    copies.follow(applied)
    assert copies.weights[0] == torch.tensor(0.1)


def test_impact_freezes_by_the_target_network_which_a_checkpoint_has(make) -> None:
    config = IMPACTConfig(target_update_every=4)
    learner = learner_of(make, config)
    # the test's own weights, as a checkpoint would bring them
    learner.load_state_tensors(
        {f"weights/{name}": array for name, array in learner.tensors().items()}
    )
    probe = make.batch(make.flat, T, B, seed=4)
    log_probs, (_, values) = make.taken(learner, probe), make.outputs(learner, probe)

    def frozen_log_probs(each) -> torch.Tensor:
        return each.prepare(probe, each.own_worker).frozen.log_probs

    def update(each, seed: int) -> None:
        batch = each.prepare(make.batch(make.flat, T, B, seed=seed), each.own_worker)
        assert make.update(each, batch).applied

    for seed in range(3):
        update(learner, seed)
    assert not torch.allclose(make.taken(learner, probe), log_probs, atol=1e-3)
    torch.testing.assert_close(frozen_log_probs(learner), log_probs, rtol=1e-4, atol=1e-5)
    frozen = learner.prepare(probe, learner.own_worker).frozen
    torch.testing.assert_close(frozen.values, values[:-1], rtol=1e-4, atol=1e-5)

    # a learner that continues has the same target network, one update before its change
    loaded = learner_of(make, config)
    loaded.load_state_tensors(learner.state_tensors())
    assert torch.equal(frozen_log_probs(loaded), frozen_log_probs(learner))
    for each in (learner, loaded):
        update(each, 5)
    newest = make.taken(learner, probe)
    torch.testing.assert_close(frozen_log_probs(learner), newest, rtol=1e-4, atol=1e-5)
    assert torch.equal(frozen_log_probs(loaded), frozen_log_probs(learner))


def test_with_normalised_returns_values_are_clipped_in_their_units(make) -> None:
    config = PPOConfig(normalise_returns=True, value_clip=0.1)
    architecture = altered(make.flat, normalise_returns=True)
    objective = make_objective(config, default_correctors(config))
    learner = make.learner(architecture, objective=objective, optimiser=OPTIMISER)
    batch = make.batch(architecture, T, B, seed=6)
    batch = make.replace(batch, rewards=500.0 * batch.rewards - 1000.0)
    batch = learner.prepare(batch, learner.own_worker)
    frozen, valid = batch.frozen, batch.valid
    # advantages are normalised by themselves
    advantages = (frozen.correction.weighted_advantages / frozen.correction.weights)[valid]
    assert float(advantages.std(correction=0)) == pytest.approx(1.0, rel=1e-4)
    # no value has moved yet, so that none is clipped
    std = float(learner.tensors()["value.std"][0])
    errors = (frozen.correction.targets - frozen.values)[valid] / std
    report = make.update(learner, batch)
    expected = 0.5 * float(errors.square().mean())
    assert report.metrics["value_loss"] == pytest.approx(expected, rel=1e-4)
