"""Targets that a loss freezes for a batch, and targets that each update computes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from aclearn.algorithms import Loss, LossSums, Outputs
from aclearn.algorithms.actor_critic import ActorCritic
from aclearn.config import OptimiserConfig
from aclearn.learning import Batch
from aclearn.learning import gradient_worker as gradient_module
from aclearn.learning.surrogate import Surrogate
from correctors import Correction, importance_weights, vtrace

OPTIMISER = OptimiserConfig(learning_rate=0.05, max_grad_norm=0.0)


@dataclass
class Seen:
    """The arguments of a loss for one part of a minibatch."""

    batch: Batch
    outputs: Outputs
    correction: Correction


class Spy(Loss):
    """The actor-critic, which records its arguments."""

    config_model = ActorCritic.config_model

    def __init__(self, *, recomputes_targets: bool) -> None:
        self.recomputes_targets = recomputes_targets
        self.seen: list[Seen] = []

    def __call__(self, batch, outputs, correction, config) -> LossSums:
        self.seen.append(Seen(batch, outputs, correction))
        return ActorCritic()(batch, outputs, correction, config)


def epochs(make, spy: Spy, *, minibatches: int = 1, passes: int = 3):
    """Learn from one batch as a trainer does; returns the batch, the first output, the reports."""
    ours = make.objective()
    learner = make.learner(
        make.flat, objective=Surrogate(spy, ours.config, ours.chain), optimiser=OPTIMISER
    )
    batch = make.batch(make.flat, 5, 4, seed=1)
    first = make.taken(learner, batch), make.outputs(learner, batch)[1]
    worker = learner.make_worker()
    prepared = learner.prepare(batch, worker)
    reports = [
        make.update(learner, minibatch, worker=worker)
        for _ in range(passes)
        for minibatch in prepared.cut(minibatches)
    ]
    assert all(report.applied for report in reports)
    return batch, first, reports


def expected_vtrace(make, batch: Batch, log_probs: torch.Tensor, values: torch.Tensor):
    return vtrace(
        values=values[:-1],
        next_values=values[1:],
        rewards=batch.rewards,
        discounts=make.loss.discount * (1.0 - batch.terminated.float()),
        done=batch.terminated | batch.truncated,
        log_rhos=log_probs - batch.behaviour_log_prob,
        **make.bars,
    )


@pytest.mark.parametrize("minibatches", [1, 2])
@pytest.mark.parametrize("chunk", [320, 6])
def test_frozen_targets_are_those_of_the_weights_before_the_first_update(
    make, monkeypatch, minibatches: int, chunk: int
) -> None:
    monkeypatch.setattr(gradient_module, "CHUNK_SAMPLES", chunk)
    spy = Spy(recomputes_targets=False)
    batch, (log_probs, values), _ = epochs(make, spy, minibatches=minibatches)
    expected = expected_vtrace(make, batch, log_probs, values)
    weights = importance_weights(
        log_probs - batch.behaviour_log_prob, rho_bar=make.bars["pg_rho_bar"]
    )
    # each pass sees every environment once, in order
    parts = len(spy.seen) // 3
    for p in range(3):
        seen = spy.seen[p * parts : (p + 1) * parts]

        def whole(of) -> torch.Tensor:
            return torch.cat([of(each) for each in seen], dim=1)  # noqa: B023

        close = {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(whole(lambda s: s.correction.targets), expected.targets, **close)
        torch.testing.assert_close(
            whole(lambda s: s.correction.weighted_advantages), expected.advantages, **close
        )
        torch.testing.assert_close(whole(lambda s: s.correction.weights), weights, **close)
        torch.testing.assert_close(
            whole(lambda s: s.outputs.proximal_log_probs), log_probs, **close
        )
        now = whole(lambda s: s.outputs.log_probs.detach())
        # π moves away from π_prox, after the first update
        if minibatches == 1:
            assert torch.allclose(now, log_probs, **close) == (p == 0)
        else:
            assert p == 0 or not torch.allclose(now, log_probs, **close)


def test_recomputed_targets_are_those_of_the_weights_of_each_update(make) -> None:
    spy = Spy(recomputes_targets=True)
    batch, (log_probs, values), _ = epochs(make, spy)
    assert len(spy.seen) == 3
    expected = expected_vtrace(make, batch, log_probs, values).targets
    torch.testing.assert_close(spy.seen[0].correction.targets, expected, rtol=1e-4, atol=1e-5)
    for before, after in zip(spy.seen, spy.seen[1:], strict=False):
        assert not torch.allclose(before.correction.targets, after.correction.targets, atol=1e-4)
    for seen in spy.seen:
        assert torch.equal(seen.outputs.proximal_log_probs, seen.outputs.log_probs.detach())


def test_the_first_update_is_the_same_both_ways_and_the_metrics_are_the_batchs(make) -> None:
    reports = {}
    for recomputes in (True, False):
        _, _, reports[recomputes] = epochs(make, Spy(recomputes_targets=recomputes))
    first, frozen = reports[True][0].metrics, reports[False][0].metrics
    assert frozen == {name: pytest.approx(value, rel=1e-4) for name, value in first.items()}
    # the ratios that V-trace clipped are those of the first pass, in every pass
    clipped = [report.metrics["clipped_rho_share"] for report in reports[False]]
    assert clipped == [pytest.approx(first["clipped_rho_share"])] * 3
