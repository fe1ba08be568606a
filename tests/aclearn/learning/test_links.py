"""Configured correctors inside an update."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aclearn.config import CorrectorConfig
from aclearn.learning import gradient_worker as gradient_module
from aclearn.learning import make_objective
from correctors import vtrace


def learner_with(make, *correctors, frozen=False):
    configs = [CorrectorConfig.model_validate(each) for each in correctors]
    objective = make_objective(make.loss, configs, behaviour_parameters=True)
    if frozen:
        objective = replace(objective, algorithm=make.Frozen())
    return make.learner(make.flat, objective=objective)


def gradient_with(make, batch, *correctors, frozen=False):
    learner = learner_with(make, *correctors, frozen=frozen)
    prepared = learner.prepare(batch, learner.own_worker)
    report = make.update(learner, prepared)
    return make.gradient(learner), report.metrics


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("chunk", [10, 10_000])
def test_states_beyond_the_kl_bound_have_no_part_in_the_gradient(
    make, monkeypatch, chunk, frozen
) -> None:
    monkeypatch.setattr(gradient_module, "CHUNK_SAMPLES", chunk)
    batch = make.batch(make.flat, 7, 5, seed=3)
    logits = torch.from_numpy(np.random.default_rng(1).normal(size=(7, 5, 4)).astype(np.float32))
    batch = make.replace(batch, behaviour_parameters=logits)
    log_pi = make.outputs(learner_with(make), batch)[0]
    kl = (log_pi.exp() * (log_pi - logits.log_softmax(-1))).sum(-1)
    bound = float(kl[batch.valid].median())
    kept = kl <= bound + 1e-5
    filtered = ["vtrace", {"kl_filter": {"bound": bound + 1e-5}}, "importance_sampling"]

    gradient, metrics = gradient_with(make, batch, *filtered, frozen=frozen)

    without = make.replace(batch, valid=batch.valid & kept)
    expected, _ = gradient_with(make, without, "vtrace", "importance_sampling")
    share = float(without.steps / batch.steps)  # means over different numbers of steps
    assert 0.3 < share < 0.7
    torch.testing.assert_close(gradient, expected * share, rtol=1e-4, atol=1e-6)
    assert metrics["kl_dropped_share"] == pytest.approx(1.0 - share, abs=1e-6)


def test_steps_that_are_dropped_have_no_part_in_the_scale_of_advantages(make) -> None:
    batch = make.batch(make.flat, 7, 5, seed=3)
    logits = torch.from_numpy(np.random.default_rng(1).normal(size=(7, 5, 4)).astype(np.float32))
    batch = make.replace(batch, behaviour_parameters=logits)
    log_pi = make.outputs(learner_with(make), batch)[0]
    kl = (log_pi.exp() * (log_pi - logits.log_softmax(-1))).sum(-1)
    bound = float(kl[batch.valid].median()) + 1e-5
    without = make.replace(batch, valid=batch.valid & (kl <= bound))

    def totals(batch, *correctors, normalise=True):
        loss = make.loss.model_copy(update={"normalise_advantages": normalise})
        configs = [CorrectorConfig.model_validate(each) for each in correctors]
        objective = make_objective(loss, configs, behaviour_parameters=True)
        learner = make.learner(make.flat, objective=objective)
        make.update(learner, learner.prepare(batch, learner.own_worker))
        return learner.state.totals[:2].tolist()

    filtered = ["vtrace", {"kl_filter": {"bound": bound}}, "importance_sampling"]
    squares, number = totals(batch, *filtered)
    assert number == int(without.steps) < int(batch.steps)
    expected, _ = totals(without, "vtrace", "importance_sampling")
    assert squares == pytest.approx(expected, rel=1e-5)
    assert totals(batch, "vtrace", normalise=False) == [0.0, 0.0]  # a resumed run may normalise


def test_epsilon_weighs_each_action_by_its_probability_under_pi(make) -> None:
    batch = make.batch(make.flat, 7, 5, seed=3)
    learner = learner_with(make, "no_correction", {"epsilon_correction": {"epsilon": 0.5}})
    log_pi, (_, values) = make.taken(learner, batch), make.outputs(learner, batch)
    on_policy = vtrace(
        values=values[:-1],
        next_values=values[1:],
        rewards=batch.rewards,
        discounts=make.loss.discount * (1.0 - batch.terminated.float()),
        done=batch.terminated | batch.truncated,
        log_rhos=torch.zeros(7, 5),
    )
    weights = log_pi.exp() / (log_pi.exp() + 0.5)
    expected = -(log_pi * weights * on_policy.advantages)[batch.valid].mean()

    metrics = make.update(learner, batch).metrics

    assert metrics["policy_loss"] == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("scale", [1.0, float("inf")])
def test_a_ratio_that_overflows_leaves_finite_weights(make, scale) -> None:
    """Six unclipped ratios of e^20 in a row are beyond float32: such an update is not applied."""
    batch = make.batch(make.flat, 7, 5, seed=3)
    far = make.replace(batch, behaviour_log_prob=batch.behaviour_log_prob - 200.0 * scale)
    far = make.replace(far, terminated=torch.zeros_like(far.terminated))
    learner = learner_with(make, {"vtrace": {"c_bar": None, "rho_bar": None}})
    report = make.update(learner, far)
    assert not report.applied
    assert all(parameter.isfinite().all() for parameter in learner.network.parameters())
    clipped = make.update(learner_with(make, "vtrace", "importance_sampling"), far)
    assert clipped.applied


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("link", [{"second_moment": {"bound": 0.2}}, "adaptive", "auto"])
def test_a_corrector_of_the_whole_update_does_not_see_how_it_is_cut(
    make, monkeypatch, link, frozen
) -> None:
    batch = make.batch(make.flat, 7, 5, seed=3)
    chain = ["auto"] if link == "auto" else ["vtrace", link]
    whole, metrics = gradient_with(make, batch, *chain, frozen=frozen)
    monkeypatch.setattr(gradient_module, "CHUNK_SAMPLES", 10)

    cut, metrics_of_cut = gradient_with(make, batch, *chain, frozen=frozen)

    torch.testing.assert_close(cut, whole, rtol=1e-4, atol=1e-6)
    names = {"adaptive": "adaptive_strength", "auto": "auto_drift_strength"}
    name = "second_moment_masked_share" if isinstance(link, dict) else names[link]
    assert metrics_of_cut[name] == pytest.approx(metrics[name], rel=1e-5)
    assert 0.0 < metrics[name] < 1.0 or link == "auto"
    without, _ = gradient_with(make, batch, "vtrace", frozen=frozen)
    assert (without - whole).abs().max() > 1e-3


def test_the_step_shrinks_with_the_effective_sample_share(make) -> None:
    batch = make.batch(make.flat, 7, 5, seed=3)
    learner = learner_with(make, "vtrace", {"scale_by_ess": {"exponent": 0.7}})
    ratios = (make.taken(learner, batch) - batch.behaviour_log_prob).double().exp()[batch.valid]
    share = float(ratios.sum() ** 2 / (len(ratios) * ratios.square().sum()))
    assert 0.1 < share < 0.9
    before = {name: weight.clone() for name, weight in learner.network.named_parameters()}
    plain = learner_with(make, "vtrace")

    report = make.update(learner, batch)

    full = make.update(plain, batch)
    assert report.metrics["effective_sample_share"] == pytest.approx(share, rel=1e-4)
    assert report.metrics["step_scale"] == pytest.approx(share**0.7, rel=1e-4)
    rate = full.metrics["learning_rate"]
    assert report.metrics["learning_rate"] == pytest.approx(rate * share**0.7, rel=1e-4)
    assert "step_scale" not in full.metrics
    unscaled = dict(plain.network.named_parameters())
    for name, weight in learner.network.named_parameters():
        moved, wanted = weight - before[name], unscaled[name] - before[name]
        torch.testing.assert_close(moved, wanted * share**0.7, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(
    ("link", "chunk", "passes"),
    # of 5 environments, in chunks of one or all; a frozen correction has measured the batch
    [("auto", 7, 5 + 5), ("auto", 10_000, 1), ("vtrace", 7, 5), ("frozen", 7, 5 + 5)],
)
def test_a_pass_more_is_made_only_where_the_update_is_cut(
    make, monkeypatch, link, chunk, passes
) -> None:
    monkeypatch.setattr(gradient_module, "CHUNK_SAMPLES", chunk)
    frozen = link == "frozen"
    learner = learner_with(make, "auto" if frozen else link, frozen=frozen)
    worker, made = learner.own_worker, []
    unroll = worker.networks.unroll
    monkeypatch.setattr(worker.networks, "unroll", lambda *a: made.append(1) or unroll(*a))
    make.update(learner, learner.prepare(make.batch(make.flat, 7, 5, seed=3), worker), worker)
    assert len(made) == passes
