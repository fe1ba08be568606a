"""One update: its gradient against plain autograd, its masks, and refused updates."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from aclearn.algorithms.actor_critic import ActorCriticConfig
from aclearn.config import OptimiserConfig
from aclearn.learning import Batch
from aclearn.learning.surrogate import ADVANTAGE_SQUARES
from aclearn.policies import Architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import OBSERVATION
from correctors import vtrace


def plain_gradient(
    batch: Batch,
    architecture: Architecture,
    weights: dict,
    loss: ActorCriticConfig,
    bars: dict,
    *,
    advantage_scale: float = 1.0,
) -> tuple[Tensor, dict[str, float]]:
    """The gradient of the whole batch and the mean losses, one step and environment at a time.

    The means include the mean squared advantage.
    """
    network = PolicyNetwork(architecture, seed=0)
    load_tensors(network, weights)
    T, B = batch.actions.shape
    logits, values = [], []
    for t in range(T + 1):
        row = [network(batch.observations[OBSERVATION][t, b : b + 1]) for b in range(B)]
        logits.append([one[0][0] for one in row])
        values.append([one[1][0] for one in row])
    taken = [
        [torch.log_softmax(logits[t][b], 0)[batch.actions[t, b]] for b in range(B)]
        for t in range(T)
    ]
    stacked_values = torch.stack([torch.stack(row) for row in values]).detach()
    log_rhos = torch.stack([torch.stack(row) for row in taken]).detach()
    returns = vtrace(
        values=stacked_values[:-1],
        next_values=stacked_values[1:],
        rewards=batch.rewards,
        discounts=loss.discount * (1.0 - batch.terminated.float()),
        done=batch.terminated | batch.truncated,
        log_rhos=log_rhos - batch.behaviour_log_prob,
        **bars,
    )
    sums = {name: torch.zeros(()) for name in ("policy", "value", "entropy", "square")}
    targets: list[float] = []
    errors: list[float] = []
    for t in range(T):
        for b in range(B):
            if not batch.valid[t, b]:
                continue
            probabilities = torch.softmax(logits[t][b], 0)
            advantage = returns.advantages[t, b]
            sums["policy"] = sums["policy"] - taken[t][b] * advantage * advantage_scale
            sums["square"] = sums["square"] + advantage**2
            sums["value"] = sums["value"] + (returns.targets[t, b] - values[t][b]) ** 2 / 2
            targets.append(float(returns.targets[t, b]))
            errors.append(float(returns.targets[t, b] - values[t][b].detach()))
            sums["entropy"] = sums["entropy"] - (probabilities * probabilities.log()).sum()
    steps = int(batch.valid.sum())
    total = (
        sums["policy"] + loss.value_cost * sums["value"] - loss.entropy_cost * sums["entropy"]
    ) / steps
    gradients = torch.autograd.grad(total, list(network.parameters()))
    means = {name: float(value.detach()) / steps for name, value in sums.items()}
    means |= {"targets": targets, "errors": errors}
    return torch.cat([gradient.reshape(-1) for gradient in gradients]), means


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("kind", ["images", "residual", "flat"])
def test_the_gradient_is_that_of_a_plain_implementation(make, kind, channels_last) -> None:
    architecture = getattr(make, kind)
    batch = make.batch(architecture, 5, 3, seed=1)
    learner = make.learner(architecture, channels_last=channels_last)
    weights = learner.tensors()
    report = make.update(learner, batch)
    expected, means = plain_gradient(batch, architecture, weights, make.loss, make.bars)
    torch.testing.assert_close(make.gradient(learner), expected, rtol=2e-4, atol=2e-6)
    assert report.metrics["policy_loss"] == pytest.approx(means["policy"], rel=1e-4, abs=1e-6)
    assert report.metrics["value_loss"] == pytest.approx(means["value"], rel=1e-4)
    assert report.metrics["entropy"] == pytest.approx(means["entropy"], rel=1e-4)
    explained = 1.0 - np.var(means["errors"]) / np.var(means["targets"])
    assert report.metrics["explained_variance"] == pytest.approx(explained, rel=1e-3, abs=1e-4)
    assert report.metrics["gradient_norm"] == pytest.approx(float(expected.norm()), rel=1e-4)
    assert report.applied


def test_normalised_advantages_are_divided_by_their_running_root_mean_square(make) -> None:
    loss = make.loss.model_copy(update={"normalise_advantages": True})
    learner = make.learner(make.flat, objective=make.objective(loss))
    squares = weight = 0.0
    for seed in (1, 2, 3):
        batch = make.batch(make.flat, 5, 3, seed=seed)
        weights = learner.tensors()
        # before the first update their unit is unknown
        scale = (weight / squares) ** 0.5 if squares else 0.0
        make.update(learner, batch)
        expected, means = plain_gradient(
            batch, make.flat, weights, loss, make.bars, advantage_scale=scale
        )
        torch.testing.assert_close(make.gradient(learner), expected, rtol=2e-4, atol=2e-6)
        # a decay of 0.99 an update, of the sum of squares and of the steps behind it alike
        squares = 0.99 * squares + means["square"] * int(batch.steps)
        weight = 0.99 * weight + int(batch.steps)
    # a checkpoint includes the running mean
    loaded = make.learner(make.flat, objective=make.objective(loss), seed=9)
    loaded.load_state_tensors(learner.state_tensors())
    batch = make.batch(make.flat, 5, 3, seed=4)
    for each in (learner, loaded):
        make.update(each, batch)
    torch.testing.assert_close(make.gradient(loaded), make.gradient(learner))


def test_squares_of_advantages_that_overflow_do_not_end_the_learning(make) -> None:
    loss = make.loss.model_copy(update={"normalise_advantages": True})
    learner = make.learner(make.flat, objective=make.objective(loss))
    batch = make.batch(make.flat, 5, 3, seed=1)
    worker = learner.make_worker()
    sums, steps = learner.differentiate(batch, worker), batch.new_steps
    sums.values[sums.names.index(ADVANTAGE_SQUARES)] = math.inf
    _, applied = learner.apply(worker, sums, steps, steps)
    assert applied
    assert learner.advantage_scale == 0.0  # as at the start, and not from now on
    make.update(learner, batch)
    assert 0.0 < learner.advantage_scale < math.inf


def test_the_learning_rate_follows_the_schedule(make) -> None:
    optimiser = OptimiserConfig(
        learning_rate=0.01, schedule="linear", schedule_steps=1000, max_grad_norm=0.0
    )
    learner = make.learner(make.flat, optimiser=optimiser)
    batch = make.batch(make.flat, 4, 3, seed=10)
    for learned, rate in [(0, 0.01), (250, 0.0075), (900, 0.001)]:
        learner.state.learned_steps.fill_(learned)
        report = make.update(learner, batch)
        assert report.metrics["learning_rate"] == pytest.approx(rate)
    learner.state.learned_steps.fill_(1000)
    before = learner.tensors()
    assert make.update(learner, batch).metrics["learning_rate"] == 0.0
    after = learner.tensors()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("junk", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["adam", "rmsprop", "rmsprop_tf"])
def test_a_gradient_that_is_not_finite_changes_nothing(make, kind, junk) -> None:
    learner = make.learner(make.images, optimiser=OptimiserConfig(kind=kind, max_grad_norm=0.5))
    good = make.batch(make.images, 4, 3, seed=11)
    make.update(learner, good)
    before = learner.state_tensors()
    rewards = good.rewards.clone()
    rewards[3, 2] = junk
    valid = good.valid.clone()
    valid[3, 2] = True
    bad = make.replace(good, rewards=rewards, valid=valid)
    report = make.update(learner, bad)
    after = learner.state_tensors()
    assert not report.applied
    assert not np.isfinite(report.metrics["gradient_norm"])
    assert set(before) == set(after)
    for name in before:
        np.testing.assert_array_equal(after[name], before[name])
    assert "gradient_norm" not in report.gauges()
    # and the next good batch is learned as usual
    undisturbed = make.learner(make.images, optimiser=OptimiserConfig(kind=kind, max_grad_norm=0.5))
    make.update(undisturbed, good)
    assert make.update(learner, good).applied
    make.update(undisturbed, good)
    expected = undisturbed.tensors()
    for name, tensor in learner.tensors().items():
        np.testing.assert_allclose(tensor, expected[name], rtol=1e-4, atol=1e-6)


def _with_end(make, batch: Batch, kind: str) -> Batch:
    """Column 1 ends at t=2 in `kind`; the reset and a failure after it are masked."""
    terminated, truncated = batch.terminated.clone(), batch.truncated.clone()
    valid = batch.valid.clone()
    terminated[:, 1] = truncated[:, 1] = False
    valid[:, 1] = torch.arange(len(valid)) <= 2
    (terminated if kind == "terminated" else truncated)[2, 1] = True
    return make.replace(batch, terminated=terminated, truncated=truncated, valid=valid)


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_nothing_after_the_end_of_an_episode_changes_its_gradient(make, kind) -> None:
    batch = _with_end(make, make.batch(make.images, 6, 3, seed=12), kind)
    rng = torch.Generator().manual_seed(13)
    changed = {
        name: getattr(batch, name).clone() for name in ("actions", "behaviour_log_prob", "rewards")
    }
    pixels = batch.observations[OBSERVATION].clone()
    # a terminated step does not read the observation that it reached; a truncated one bootstraps
    # from it
    first = 3 if kind == "terminated" else 4
    later = pixels[first:, 1]
    later.copy_(torch.randint(0, 256, later.shape, generator=rng, dtype=torch.uint8))
    changed["actions"][3:, 1] = (changed["actions"][3:, 1] + 1) % 3
    changed["behaviour_log_prob"][3:, 1] -= 3.0
    changed["rewards"][3:, 1] = float("nan")
    other = make.replace(batch, observations={OBSERVATION: pixels}, **changed)
    torch.testing.assert_close(
        make.gradient_of(other, make.images),
        make.gradient_of(batch, make.images),
        rtol=1e-5,
        atol=1e-7,
    )


def test_on_policy_data_are_worth_all_their_steps(make) -> None:
    batch = make.batch(make.flat, 4, 3, seed=17)
    learner = make.learner(make.flat)
    taken = make.taken(learner, batch)
    on_policy = make.replace(batch, behaviour_log_prob=taken + 0.01)
    report = make.update(learner, on_policy)
    assert report.metrics["effective_sample_share"] == pytest.approx(1.0, rel=1e-4)
    assert report.metrics["clipped_rho_share"] == 0.0
    halves = taken.clone()
    halves[:, 0] -= float(np.log(3.0))  # ρ = 3 in one of three environments, 1 in the others
    report = make.update(make.learner(make.flat), make.replace(batch, behaviour_log_prob=halves))
    threes = int(batch.valid[:, 0].sum())
    ones = int(batch.steps) - threes
    worth = (3 * threes + ones) ** 2 / (9 * threes + ones)
    assert report.metrics["effective_sample_share"] == pytest.approx(
        worth / int(batch.steps), rel=1e-4
    )
    above = make.replace(batch, behaviour_log_prob=batch.behaviour_log_prob - 20)
    assert make.update(make.learner(make.flat), above).metrics["clipped_rho_share"] == 1.0
