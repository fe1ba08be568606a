"""The distance of π at the update from μ at the act: divergence and ratios, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.learning import gradient_worker as gradient_module


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize("chunk", [10, 10_000])
def test_the_divergence_is_that_of_the_recorded_parameters(make, monkeypatch, chunk) -> None:
    monkeypatch.setattr(gradient_module, "CHUNK_SAMPLES", chunk)
    batch, learner = make.batch(make.flat, 7, 5, seed=3), make.learner(make.flat)
    logits = np.random.default_rng(1).normal(size=(7, 5, 4)).astype(np.float32)
    logits[~batch.valid.numpy()] = np.nan
    recorded = make.replace(batch, behaviour_parameters=torch.from_numpy(logits))
    pi, mu = make.outputs(learner, batch)[0].double().numpy(), log_softmax(logits)
    total = 0.0
    for t, b in zip(*np.nonzero(batch.valid.numpy()), strict=True):
        total += sum(np.exp(mu[t, b, a]) * (mu[t, b, a] - pi[t, b, a]) for a in range(4))
    metrics = make.update(learner, recorded).metrics
    assert metrics["behaviour_kl"] == pytest.approx(total / int(batch.steps), rel=1e-4)
    assert "behaviour_kl_estimate" not in metrics


def test_without_parameters_it_is_estimated_from_the_actions_taken(make) -> None:
    batch, learner = make.batch(make.flat, 7, 5, seed=3), make.learner(make.flat)
    log_pi = make.taken(learner, batch)
    log_rho = (log_pi - batch.behaviour_log_prob)[batch.valid].double().numpy()
    metrics = make.update(learner, batch).metrics
    expected = np.mean(np.exp(log_rho) - 1.0 - log_rho)
    assert metrics["behaviour_kl_estimate"] == pytest.approx(expected, rel=1e-4)
    assert metrics["rho_mean"] == pytest.approx(np.exp(log_rho).mean(), rel=1e-4)
    assert "behaviour_kl" not in metrics


def test_on_policy_it_vanishes_and_no_ratio_overflows_it(make) -> None:
    batch, learner = make.batch(make.flat, 4, 3, seed=17), make.learner(make.flat)
    on_policy = make.replace(batch, behaviour_log_prob=make.taken(learner, batch))
    assert 0.0 <= make.update(learner, on_policy).metrics["behaviour_kl_estimate"] < 1e-9
    far = make.replace(batch, behaviour_log_prob=batch.behaviour_log_prob - 200.0)
    report = make.update(make.learner(make.flat), far)  # ρ beyond float32
    assert np.isfinite(report.metrics["behaviour_kl_estimate"])


def test_it_stands_in_place_of_a_figure_of_that_name_of_the_loss(make) -> None:
    class Own(type(make.objective().algorithm)):
        def __call__(self, *given):
            made = super().__call__(*given)
            of_that_name = {"behaviour_kl_estimate": torch.tensor(7.0)}
            return made._replace(metrics={**of_that_name, **made.metrics})

        def ends_batch(self, metrics, config):
            seen.append(float(metrics["behaviour_kl_estimate"]))
            return False

    seen = list[float]()
    objective = make.replace(make.objective(), algorithm=Own())
    learner = make.learner(make.flat, objective=objective)
    [report] = learner.learn(make.batch(make.flat, 7, 5, seed=3))
    assert seen == [report.metrics["behaviour_kl_estimate"]]
    assert seen != [pytest.approx(7.0 / report.steps)]
