"""One update: its gradient against plain autograd, its masks, and refused updates."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from aclearn.algorithms.actor_critic import ActorCriticConfig
from aclearn.config import OptimiserConfig
from aclearn.config.loss import default_correctors
from aclearn.learning import Batch, Learner, make_objective
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


def test_without_bars_nothing_is_clipped(make) -> None:
    bars = make.bars | dict.fromkeys(("rho_bar", "c_bar", "pg_rho_bar"))
    batch = make.batch(make.flat, 5, 3, seed=1)
    learner = make.learner(make.flat, objective=make.objective(bars=bars))
    weights = learner.tensors()
    report = make.update(learner, batch)
    expected, _ = plain_gradient(batch, make.flat, weights, make.loss, bars)
    torch.testing.assert_close(make.gradient(learner), expected, rtol=2e-4, atol=2e-6)
    assert report.applied and report.metrics["clipped_rho_share"] == 0.0


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
    assert learner._advantage_scale == 0.0  # as at the start, and not from now on
    make.update(learner, batch)
    assert 0.0 < learner._advantage_scale < math.inf


def test_cutting_a_large_batch_into_chunks_does_not_change_its_gradient(make) -> None:
    batch = make.batch(make.images, 5, 7, seed=6)
    whole = make.gradient_of(batch, make.images)
    in_parts = make.gradient_of(batch, make.images, chunk_samples=10)
    torch.testing.assert_close(in_parts, whole, rtol=1e-4, atol=1e-6)


def test_the_first_adam_step_is_the_learning_rate_against_the_sign_of_the_gradient(make) -> None:
    # bias-corrected moments of one gradient g are g and g², so the step is lr · g / (|g| + ε)
    optimiser = OptimiserConfig(max_grad_norm=0.0, learning_rate=0.01, epsilon=1e-3)
    learner = make.learner(make.flat, optimiser=optimiser)
    before = {name: p.detach().clone() for name, p in learner.network.named_parameters()}
    make.update(learner, make.batch(make.flat, 4, 3, seed=7))
    for name, parameter in learner.network.named_parameters():
        g = parameter.grad
        expected = before[name] - 0.01 * g / (g.abs() + 1e-3)
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-5, atol=1e-7)


def test_the_first_rmsprop_step_divides_by_the_root_of_the_mean_square(make) -> None:
    optimiser = OptimiserConfig(
        kind="rmsprop", rmsprop_alpha=0.9, max_grad_norm=0.0, learning_rate=0.01, epsilon=1e-3
    )
    learner = make.learner(make.flat, optimiser=optimiser)
    before = {name: p.detach().clone() for name, p in learner.network.named_parameters()}
    make.update(learner, make.batch(make.flat, 4, 3, seed=8))
    for name, parameter in learner.network.named_parameters():
        g = parameter.grad
        expected = before[name] - 0.01 * g / ((0.1 * g**2).sqrt() + 1e-3)
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("given", [{}, {"rmsprop_initial": 0.04}], ids=str)
def test_rmsprop_of_tensorflow_has_epsilon_under_the_root_of_a_mean_square_with_a_start(
    make, given
) -> None:
    optimiser = OptimiserConfig(
        **{"kind": "rmsprop_tf", "rmsprop_alpha": 0.9, "max_grad_norm": 0.0},
        **{"learning_rate": 0.01, "epsilon": 0.1} | given,
    )
    learner = make.learner(make.flat, optimiser=optimiser)
    first = given.get("rmsprop_initial", 1.0)
    squares = {name: torch.full_like(p, first) for name, p in learner.network.named_parameters()}
    for seed in (8, 9):
        before = {name: p.detach().clone() for name, p in learner.network.named_parameters()}
        make.update(learner, make.batch(make.flat, 4, 3, seed=seed))
        for name, parameter in learner.network.named_parameters():
            g = parameter.grad
            squares[name] = 0.9 * squares[name] + 0.1 * g**2
            expected = before[name] - 0.01 * g / (squares[name] + 0.1).sqrt()
            torch.testing.assert_close(parameter.detach(), expected, rtol=1e-5, atol=1e-7)


def test_long_gradients_are_scaled_to_the_bound_and_reported_as_they_were(make) -> None:
    batch = make.batch(make.images, 5, 3, seed=9)
    whole = make.gradient_of(batch, make.images)
    bound = float(whole.norm()) / 4
    learner = make.learner(make.images, optimiser=OptimiserConfig(max_grad_norm=bound))
    report = make.update(learner, batch)
    assert report.metrics["gradient_norm"] == pytest.approx(4 * bound, rel=1e-4)
    torch.testing.assert_close(make.gradient(learner), whole / 4, rtol=1e-3, atol=1e-6)


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


def test_a_truncated_step_bootstraps_from_what_it_reached_and_a_terminated_one_does_not(
    make,
) -> None:
    base = make.batch(make.images, 6, 3, seed=14)
    for kind, matters in [("truncated", True), ("terminated", False)]:
        batch = _with_end(make, base, kind)
        pixels = batch.observations[OBSERVATION].clone()
        pixels[3, 1] = 255 - pixels[3, 1]
        other = make.replace(batch, observations={OBSERVATION: pixels})
        difference = make.gradient_of(other, make.images) - make.gradient_of(batch, make.images)
        assert (float(difference.abs().max()) > 1e-4) == matters


@pytest.mark.parametrize("name", ["rewards", "behaviour_log_prob", "actions"])
def test_an_autoreset_step_changes_no_gradient(make, name) -> None:
    # step 3 of column 1 is the reset; step 4 and on are a new episode that is learned
    batch = _with_end(make, make.batch(make.images, 6, 3, seed=15), "truncated")
    valid = batch.valid.clone()
    valid[4:, 1] = True
    batch = make.replace(batch, valid=valid)
    changed = getattr(batch, name).clone()
    changed[3, 1] = (changed[3, 1] + 1) % 3 if name == "actions" else -9.0
    other = make.replace(batch, **{name: changed})
    torch.testing.assert_close(
        make.gradient_of(other, make.images), make.gradient_of(batch, make.images), rtol=0, atol=0
    )
    # the same change at a valid step has an effect
    changed = getattr(batch, name).clone()
    changed[4, 1] = (changed[4, 1] + 1) % 3 if name == "actions" else -9.0
    other = make.replace(batch, **{name: changed})
    difference = make.gradient_of(other, make.images) - make.gradient_of(batch, make.images)
    assert float(difference.abs().max()) > 1e-4


def test_the_gradient_is_a_mean_over_valid_steps(make) -> None:
    # the same data twice, side by side, has the gradient of the data once
    batch = make.batch(make.images, 5, 3, seed=16)
    names = (
        "actions",
        "behaviour_log_prob",
        "rewards",
        "terminated",
        "truncated",
        "valid",
    )
    twice = make.replace(
        batch,
        observations={OBSERVATION: torch.cat([batch.observations[OBSERVATION]] * 2, dim=1)},
        **{name: torch.cat([getattr(batch, name)] * 2, dim=1) for name in names},
        versions=np.concatenate([batch.versions] * 2, axis=1),
    )
    torch.testing.assert_close(
        make.gradient_of(twice, make.images),
        make.gradient_of(batch, make.images),
        rtol=1e-4,
        atol=1e-6,
    )


def test_on_policy_data_are_worth_all_their_steps(make) -> None:
    batch = make.batch(make.flat, 4, 3, seed=17)
    learner = make.learner(make.flat)
    with torch.no_grad():
        logits, _ = learner.network(batch.observations[OBSERVATION][:-1].flatten(0, 1))
        taken = torch.log_softmax(logits, -1).view(4, 3, -1).gather(2, batch.actions[..., None])
    on_policy = make.replace(batch, behaviour_log_prob=taken[..., 0] + 0.01)
    report = make.update(learner, on_policy)
    assert report.metrics["effective_sample_share"] == pytest.approx(1.0, rel=1e-4)
    assert report.metrics["clipped_rho_share"] == 0.0
    halves = taken[..., 0].clone()
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


@pytest.mark.parametrize("kind", ["flat", "residual"])
def test_repeated_updates_on_good_actions_make_them_likely(make, kind) -> None:
    # one state, action 2 pays 1 and the others 0: a policy that learns must come to prefer it
    architecture = getattr(make, kind)
    T, B = 8, 4
    rng = np.random.default_rng(18)
    images = architecture.observation.sole.dtype == "uint8"
    shape = (T + 1, B, *architecture.observation.sole.shape)
    observations = torch.full(shape, 200, dtype=torch.uint8) if images else torch.ones(shape)
    learner = Learner(
        architecture,
        objective=make_objective(
            ActorCriticConfig(discount=0.0, entropy_cost=0.0),
            default_correctors(ActorCriticConfig()),
        ),
        optimiser=OptimiserConfig(learning_rate=0.03),
        device=make.cpu,
        seed=5,
    )
    for _ in range(40):
        with torch.no_grad():
            logits = learner.network(observations[0, :1])[0][0]
        log_probs = torch.log_softmax(logits, 0)
        p = torch.softmax(logits.double(), 0).numpy()
        actions = torch.from_numpy(rng.choice(architecture.parameter_count, (T, B), p=p))
        no = torch.zeros(T, B, dtype=torch.bool)
        list(
            learner.learn(
                Batch(
                    {OBSERVATION: observations},
                    actions,
                    log_probs[actions],
                    (actions == 2).float(),
                    no,
                    no,
                    ~no,
                    np.zeros((T, B), np.int64),
                )
            )
        )
    with torch.no_grad():
        probabilities = torch.softmax(learner.network(observations[0, :1])[0], -1)[0]
    assert float(probabilities[2]) > 0.8


def test_an_action_that_is_masked_has_no_part_in_the_gradient(make) -> None:
    batch = make.batch(make.flat, 5, 3, seed=19)
    actions = batch.actions.clamp(min=1)
    masks = torch.ones(5, 3, make.flat.parameter_count, dtype=torch.bool)
    free = make.replace(batch, actions=actions, masks=masks)
    unmasked = make.replace(batch, actions=actions)
    torch.testing.assert_close(
        make.gradient_of(free, make.flat), make.gradient_of(unmasked, make.flat), rtol=0, atol=0
    )
    masks = masks.clone()
    masks[..., 0] = False
    learner = make.learner(make.flat)
    assert make.update(learner, make.replace(free, masks=masks)).applied
    gradient = learner.network.policy.bias.grad
    assert gradient[0] == 0.0 and bool((gradient[1:] != 0.0).all())
