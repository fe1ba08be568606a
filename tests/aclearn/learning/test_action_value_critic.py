"""Learning with a Q head: gradients against the loss written out, for each chain."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from aclearn.config import CorrectorConfig
from aclearn.errors import ConfigError
from aclearn.learning import gradient_worker as gradient_module
from aclearn.learning import make_objective
from aclearn.learning.surrogate import Objective
from aclearn.policies import build_architecture
from aclearn.types import OBSERVATION, ObservationSpec
from correctors import importance_sampling, q_lambda, retrace, tree_backup, vtrace

FLAT = build_architecture(
    "flat",
    ObservationSpec.plain((3,), "float32"),
    4,
    (),
    (5,),
    "tanh",
    separate_value=True,
    critic="q",
)
FUNCTIONS = {
    "retrace": retrace,
    "tree_backup": tree_backup,
    "q_lambda": q_lambda,
    "q_importance_sampling": importance_sampling,
}


def objective_with(make, *correctors) -> Objective:
    configs = [CorrectorConfig.model_validate(each) for each in correctors]
    return make_objective(make.loss, configs, critic="q")


def masked(make, batch, seed=0):
    """The batch with a mask for each observation; where steps are not valid nothing need fit."""
    masks = torch.rand(8, 5, 4, generator=torch.Generator().manual_seed(seed)) < 0.5
    masks[:-1].scatter_(2, batch.actions[..., None], True)
    masks[-1, :, 1] = True
    return make.replace(batch, masks=masks)


def next_rows(steps: torch.Tensor, last: float) -> torch.Tensor:
    return torch.cat([steps[1:], torch.full_like(steps[:1], last)])


def expected_gradient(make, learner, batch, name) -> torch.Tensor:
    """Of the actor-critic's mean loss, one row of observations at a time."""
    rows = [learner.network(row) for row in batch.observations[OBSERVATION]]
    logits = torch.stack([row[0] for row in rows])
    if batch.masks is not None:
        logits = logits.where(batch.masks, logits.new_tensor(-1e30))
    log_pi = logits.log_softmax(-1)
    q = torch.stack([row[1] for row in rows])
    assert q.shape == (8, 5, 4)
    taken = batch.actions[..., None]
    log_probs = log_pi[:-1].gather(2, taken)[..., 0]
    with torch.no_grad():
        values = (log_pi.exp() * q).sum(-1)
        log_rhos = log_probs - batch.behaviour_log_prob
        given = {
            "rewards": batch.rewards,
            "discounts": make.loss.discount * (1.0 - batch.terminated.float()),
            "done": batch.terminated | batch.truncated,
        }
        if name == "vtrace":
            known = {"values": values[:-1], "next_values": values[1:], "log_rhos": log_rhos}
            advantages = vtrace(**known, **given, pg_rho_bar=None, lambda_=0.9).advantages
            targets = values[:-1] + advantages / log_rhos.exp()
        else:
            given |= {
                "q_next": q[1:],
                "next_actions": next_rows(batch.actions, -1),
                "next_target_probs": log_pi[1:].exp(),
            }
            if name in ("retrace", "q_importance_sampling"):
                given["next_log_rhos"] = next_rows(log_rhos, float("nan"))
            targets = FUNCTIONS[name](**given, lambda_=0.9)
        weighted = log_rhos.exp().clamp(max=1.0) * (targets - values[:-1])
    policy = -log_probs * weighted
    value = 0.5 * (q[:-1].gather(2, taken)[..., 0] - targets).square()
    entropy = -(log_pi.exp() * log_pi.clamp(min=-1e20)).sum(-1)[:-1]
    steps = policy + make.loss.value_cost * value - make.loss.entropy_cost * entropy
    parameters = list(learner.network.parameters())
    gradients = torch.autograd.grad(steps[batch.valid].mean(), parameters)
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("chunk", [10, 10_000])
@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("name", [*FUNCTIONS, "vtrace"])
def test_the_gradient_is_that_of_the_loss_written_out(
    make, monkeypatch, name, masks, chunk, frozen
) -> None:
    monkeypatch.setattr(gradient_module, "CHUNK_SAMPLES", chunk)
    objective = objective_with(make, {name: {"lambda": 0.9}}, "importance_sampling")
    if frozen:
        objective = replace(objective, algorithm=make.Frozen())
    learner = make.learner(FLAT, objective=objective)
    batch = make.batch(FLAT, 7, 5, seed=3)
    if masks:
        batch = masked(make, batch)
    expected = expected_gradient(make, learner, batch, name)

    worker = learner.make_worker()
    report = make.update(learner, learner.prepare(batch, worker), worker=worker)

    assert report.applied
    torch.testing.assert_close(make.gradient(learner), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("ends_at", [None, 0], ids=["at the end", "at a cut in mid-unroll"])
def test_values_of_forbidden_actions_are_in_no_target(make, ends_at) -> None:
    """The first action has a Q of -100 everywhere and is allowed nowhere; the others have 1."""
    T = 1 if ends_at is None else 3
    objective = objective_with(make, {"retrace": {"lambda": 0.9}}, "importance_sampling")
    learner = make.learner(FLAT, objective=replace(objective, algorithm=make.Frozen()))
    with torch.no_grad():
        learner.network.q.weight.zero_()
        learner.network.q.bias.copy_(torch.tensor([-100.0, 1.0, 1.0, 1.0]))
    batch = make.batch(FLAT, T, 2, seed=3)
    never = torch.zeros(T, 2, dtype=torch.bool)
    cut = never.clone()
    valid = ~never
    if ends_at is not None:
        cut[ends_at], valid[ends_at + 1] = True, False
    masks = torch.ones(T + 1, 2, 4, dtype=torch.bool)
    masks[..., 0] = False
    batch = make.replace(
        batch,
        actions=torch.ones(T, 2, dtype=torch.long),
        rewards=torch.zeros(T, 2),
        terminated=never,
        truncated=cut,
        valid=valid,
        masks=masks,
    )
    targets = learner.prepare(batch, learner.own_worker).frozen.correction.targets
    torch.testing.assert_close(targets[0], torch.full((2,), 0.9))  # γ · 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_with_a_v_critic_correctors_of_action_values_are_refused(make, name) -> None:
    config = CorrectorConfig.model_validate(name)
    with pytest.raises(ConfigError, match=rf"^correctors\[0\] '{name}': needs .*critic: q$"):
        make_objective(make.loss, [config])
