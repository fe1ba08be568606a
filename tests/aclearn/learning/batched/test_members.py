"""Learners whose updates are made together, beside the same ones that learn apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aclearn.algorithms.a2c import A2CConfig
from aclearn.algorithms.actor_critic import ActorCriticConfig
from aclearn.algorithms.impact import IMPACTConfig
from aclearn.algorithms.ppo import PPOConfig
from aclearn.config import CorrectorConfig, LossConfig, OptimiserConfig
from aclearn.learning import Batch, Learner, make_objective
from aclearn.learning.batched import MemberLearners
from aclearn.learning.batched.tensors import stacked
from tests.support.architectures import altered

T, B, M = 6, 5, 3
UPDATES = 5


def _correctors(lambda_: float) -> list[CorrectorConfig]:
    given = [{"vtrace": {"lambda": lambda_}}, "importance_sampling"]
    return [CorrectorConfig.model_validate(each) for each in given]


#: Loss, optimiser, and keys of `learn`.
CASES: dict[str, tuple[LossConfig, OptimiserConfig, dict[str, int]]] = {
    "actor_critic": (
        ActorCriticConfig(normalise_advantages=True),
        OptimiserConfig(kind="adam", max_grad_norm=0.5, epsilon=1e-3),
        {"minibatches": 2, "epochs": 2},
    ),
    "a2c": (
        A2CConfig(normalise_returns=True),
        OptimiserConfig(kind="rmsprop_tf", schedule="linear", schedule_steps=500),
        {},
    ),
    "ppo": (
        PPOConfig(target_kl=0.02, value_clip=0.3),
        OptimiserConfig(kind="adam", max_grad_norm=0.5),
        {"minibatches": 4, "epochs": 3},
    ),
    "impact": (
        IMPACTConfig(target_update_every=3),
        OptimiserConfig(kind="rmsprop"),
        {"minibatches": 2, "epochs": 2},
    ),
}


def _learners(make: Any, architecture: Any, case: str) -> list[Learner]:
    """Members with other weights and numbers."""
    loss, optimiser, _ = CASES[case]
    made = []
    for member in range(M):
        change: dict[str, float] = {"discount": 0.9 + 0.03 * member, "entropy_cost": 0.01 * member}
        change["value_cost"] = 0.4 + 0.1 * member
        if hasattr(loss, "clip_range"):
            change["clip_range"] = 0.1 + 0.1 * member
        objective = make_objective(loss.model_copy(update=change), _correctors(0.7 + 0.1 * member))
        rate = optimiser.model_copy(update={"learning_rate": 0.002 * (1 + member)})
        made.append(make.learner(architecture, objective=objective, optimiser=rate, seed=member))
    return made


def _batches(make: Any, architecture: Any, number: int) -> list[Batch]:
    return [make.batch(architecture, T, B, seed=100 * number + m) for m in range(M)]


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_they_learn_what_they_would_learn_apart(make, case: str, normalised: bool) -> None:
    architecture = altered(make.flat, normalise_observations=normalised)
    _, _, keys = CASES[case]
    apart = _learners(make, architecture, case)
    together = _learners(make, architecture, case)
    members = MemberLearners(together)
    reports: list[list[Any]] = [[] for _ in range(M)]
    expected: list[list[Any]] = [[] for _ in range(M)]
    for number in range(UPDATES):
        batches = _batches(make, architecture, number)
        found = members.learn(stacked(batches), torch.ones(M, dtype=torch.bool), **keys)
        for member in range(M):
            reports[member] += found.of(member)
            expected[member] += apart[member].learn(batches[member], **keys)
    for member in range(M):
        assert len(reports[member]) == len(expected[member])
        for mine, theirs in zip(reports[member], expected[member], strict=True):
            assert (mine.applied, mine.steps, mine.new_steps, mine.ends) == (
                theirs.applied,
                theirs.steps,
                theirs.new_steps,
                theirs.ends,
            )
            assert mine.metrics == pytest.approx(theirs.metrics, rel=1e-3, abs=1e-4)
        state, other = together[member].state_tensors(), apart[member].state_tensors()
        assert state.keys() == other.keys()
        for name, array in other.items():
            np.testing.assert_allclose(state[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", ["actor_critic", "ppo"])
def test_a_gradient_that_is_not_finite_is_refused_of_its_member_alone(make, case: str) -> None:
    together = _learners(make, make.flat, case)
    before = [each.tensors() for each in together]
    batches = _batches(make, make.flat, 0)
    batches[1].rewards.fill_(torch.inf)
    made = MemberLearners(together).learn(stacked(batches), torch.ones(M, dtype=torch.bool))
    applied = [made.of(member)[0].applied for member in range(M)]
    assert applied == [True, False, True]
    for each, old, moved in zip(together, before, applied, strict=True):
        assert (each.tensors()["value.weight"] != old["value.weight"]).any() == moved
        assert all(np.isfinite(array).all() for array in each.state_tensors().values())


def test_a_member_that_does_not_learn_stays_as_it_is(make) -> None:
    together = _learners(make, make.flat, "actor_critic")
    before = together[2].state_tensors()
    batches = _batches(make, make.flat, 0)
    made = MemberLearners(together).learn(stacked(batches), torch.tensor([True, True, False]))
    assert [len(made.of(member)) for member in range(M)] == [1, 1, 0]
    for name, array in together[2].state_tensors().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
