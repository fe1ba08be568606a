"""N ranks make the updates of one trainer with the N-fold batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from aclearn.algorithms.actor_critic import ActorCriticConfig
from aclearn.algorithms.ddpg import DDPGConfig
from aclearn.algorithms.impact import IMPACTConfig
from aclearn.algorithms.ppo import PPOConfig
from aclearn.config import CorrectorConfig, LossConfig, OptimiserConfig
from aclearn.config.loss import default_correctors
from aclearn.learning import Batch, BatchStopped, Learner, UpdateReport, make_objective
from aclearn.learning.ranks import Group
from aclearn.learning.update_report import Sums
from aclearn.policies import build_architecture
from aclearn.types import OBSERVATION, ActionSpec, Memory, ObservationSpec
from aclearn.types.action_spec import ActionPart
from tests.support.ranks import run_ranks

_T, _B = 5, 6
_CPU = torch.device("cpu")
_ADAM = OptimiserConfig(max_grad_norm=0.5, schedule="linear", schedule_steps=1000)
_BOX = ActionSpec.of((ActionPart(shape=(2,), dtype="float32", low=(-1, -1), high=(1, 1)),))
_LOSSES: dict[str, LossConfig] = {
    "v-trace": ActorCriticConfig(entropy_cost=0.02),
    "normalised advantages": ActorCriticConfig(normalise_advantages=True),
    "normalised returns": ActorCriticConfig(normalise_returns=True),
    "ppo": PPOConfig(normalise_returns=True),
    "an early end": PPOConfig(target_kl=1e-8, entropy_cost=0.0),
    "a target network": IMPACTConfig(target_update_every=2),
    "a deterministic policy": DDPGConfig(target_update_rate=0.1),
    "a memory": PPOConfig(discount=0.98),
}


def _learner(loss: LossConfig, **options: Any) -> Learner:
    numbers = isinstance(loss, DDPGConfig)
    architecture = build_architecture(
        "mlp",
        ObservationSpec.plain((4,), "float32"),
        replace(_BOX, squash=True) if numbers else ActionSpec.discrete(3),
        hidden=(8,),
        critic="action" if numbers else "v",
        normalise_observations=loss.normalise_returns,
        normalise_returns=loss.normalise_returns,
        memory=Memory("lstm", 4, 1) if loss is _LOSSES["a memory"] else None,
    )
    return Learner(
        architecture,
        device=_CPU,
        seed=3,
        burn_in_steps=int(bool(architecture.state)),
        **{
            "objective": make_objective(loss, default_correctors(loss)),
            "optimiser": _ADAM,
            **options,
        },
    )


def _batch(learner: Learner, seed: int, width: int = _B) -> Batch:
    draw = np.random.default_rng(seed)

    def floats(*shape: int) -> torch.Tensor:
        return torch.from_numpy(draw.normal(size=shape).astype(np.float32))

    choosing = learner.architecture.action_spec.kind == "discrete"
    choices = torch.from_numpy(draw.integers(3, size=(_T, width)))
    return Batch(
        observations={OBSERVATION: floats(_T + 1, width, 4)},
        actions=choices if choosing else floats(_T, width, 2),
        behaviour_log_prob=floats(_T, width) * 0.2 - 1.0,
        rewards=floats(_T, width),
        terminated=torch.from_numpy(draw.random((_T, width)) < 0.2),
        truncated=torch.zeros(_T, width, dtype=torch.bool),
        valid=torch.from_numpy(draw.random((_T, width)) < 0.3 + 0.1 * seed),
        versions=np.zeros((_T, width), np.int64),
        state=tuple(floats(width, units) for units in learner.architecture.state),
    )


def _side_by_side(first: Batch, second: Batch) -> Batch:
    """Both batches as one."""
    joined: dict[str, Any] = {}
    for name in (field.name for field in fields(Batch)):
        mine, its = getattr(first, name), getattr(second, name)
        if isinstance(mine, torch.Tensor):
            joined[name] = torch.cat([mine, its], dim=1)
        elif isinstance(mine, np.ndarray):
            joined[name] = np.concatenate([mine, its], axis=1)
    leaves = {k: torch.cat([v, second.observations[k]], 1) for k, v in first.observations.items()}
    state = tuple(map(torch.cat, zip(first.state, second.state, strict=True)))
    return replace(first, observations=leaves, state=state, **joined)


def _state(learner: Learner) -> Mapping[str, np.ndarray]:
    return {n: t for n, t in learner.state_tensors().items() if not n.startswith("random/")}


def _gradient(learner: Learner) -> torch.Tensor:
    groups = learner.state.optimiser.param_groups
    return torch.cat([vector.grad for group in groups for vector in group["params"]])


@pytest.mark.parametrize("named", _LOSSES)
def test_two_ranks_are_one_trainer_with_both_batches(named: str) -> None:
    loss, gradients = _LOSSES[named], []

    def learn(group: Group) -> tuple[list[list[UpdateReport]], Mapping[str, np.ndarray]]:
        learner = _learner(loss, group=group)
        made = [learner.learn(_batch(learner, 2 * n + group.rank), epochs=3) for n in range(3)]
        if group.rank == 0:
            gradients.append(_gradient(learner))
        return made, _state(learner)

    ranks = {kind: run_ranks(kind, 2, learn) for kind in ("lockstep", "gloo")}
    whole = _learner(loss)
    expected = [
        whole.learn(_side_by_side(_batch(whole, 2 * n), _batch(whole, 2 * n + 1)), epochs=3)
        for n in range(3)
    ]
    gradients.append(_gradient(whole))
    for theirs, *ours in zip(expected, *(made for made, _ in ranks["gloo"]), strict=True):
        assert [len(each) for each in ours] == [len(theirs)] * 2
        for its, *mine in zip(theirs, *ours, strict=True):
            assert sum(report.new_steps for report in mine) == its.new_steps
            for report in mine:
                assert (report.steps, report.ends) == (its.steps, its.ends)
                assert report.metrics == pytest.approx(dict(its.metrics), rel=1e-4, abs=1e-6)
    if named == "an early end":
        assert any(report.ends for each in expected for report in each)
    state, others = ranks["lockstep"][0][1], [*ranks["gloo"], ranks["lockstep"][1]]
    for name, values in _state(whole).items():
        np.testing.assert_allclose(state[name], values, rtol=1e-3, atol=1e-5, err_msg=name)
        for _, other in others:  # the same bits on every rank, whatever carries them
            np.testing.assert_array_equal(other[name], state[name], err_msg=name)
    assert torch.equal(gradients[0], gradients[1])


@pytest.mark.parametrize("corrector", [None, "second_moment"])
@pytest.mark.parametrize("named", _LOSSES)
def test_the_gradient_of_two_ranks_is_that_of_the_whole_batch(
    named: str, corrector: str | None
) -> None:
    loss = _LOSSES[named]
    objective = make_objective(loss, default_correctors(loss))
    if corrector is not None:  # looks at the ratios of all steps together
        if isinstance(loss, DDPGConfig):
            pytest.skip("its ratios are 1")
        objective = make_objective(
            loss, [*default_correctors(loss), CorrectorConfig.model_validate(corrector)]
        )

    def learn(group: Group) -> torch.Tensor:
        learner = _learner(loss, group=group, objective=objective)
        learner.learn(_batch(learner, 4 + group.rank))
        return _gradient(learner)

    [gradient, _] = run_ranks("lockstep", 2, learn)
    whole = _learner(loss, objective=objective)
    whole.learn(_side_by_side(_batch(whole, 4), _batch(whole, 5)))
    difference = torch.linalg.vector_norm(gradient - _gradient(whole))
    assert difference <= 1e-6 * torch.linalg.vector_norm(_gradient(whole))


@pytest.mark.parametrize("kind", ["lockstep", "gloo"])
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_have_the_bits_of_a_process_that_adds_their_parts(kind: str, size: int) -> None:
    def learn(group: Group) -> Mapping[str, np.ndarray]:
        learner = _learner(_LOSSES["v-trace"], group=group)
        for n in range(2):
            learner.learn(_batch(learner, size * n + group.rank))
        return _state(learner)

    made = run_ranks(kind, size, learn)
    single = _learner(_LOSSES["v-trace"])
    workers = [single.make_worker() for _ in range(size)]
    for n in range(2):
        batches = [_batch(single, size * n + rank) for rank in range(size)]
        steps = torch.stack([batch.steps for batch in batches]).sum()
        parts = [
            single.differentiate(batch, worker, steps)
            for batch, worker in zip(batches, workers, strict=True)
        ]
        for mine, *others in zip(*(worker.gradients() for worker in workers), strict=True):
            for its in others:
                mine.add_(its)
        values = parts[0].values
        for part in parts[1:]:
            values = values + part.values
        single.apply(workers[0], Sums(parts[0].names, values), steps, steps)
    for state in made:
        for name, values in _state(single).items():
            np.testing.assert_array_equal(state[name], values, err_msg=name)


def test_what_one_rank_cannot_learn_is_refused_by_all_and_minibatches_are_as_many() -> None:
    def learn(group: Group) -> tuple[list[UpdateReport], Mapping[str, np.ndarray]]:
        learner = _learner(_LOSSES["ppo"], group=group)
        batch = _batch(learner, 4 + group.rank)
        if group.rank == 1:  # two steps alone, one of them without a reward
            batch.valid[:] = False
            batch.valid[0, :2] = True
            batch.rewards[0, 0] = float("nan")
        return learner.learn(batch, minibatches=4, epochs=2), _state(learner)

    (reports, state), (others, other) = run_ranks("lockstep", 2, learn)
    applied = [report.applied for report in reports]
    assert applied == [report.applied for report in others]
    assert set(applied[:2]) == {False, True}  # the minibatch with the NaN, in the first pass
    for name, values in state.items():
        np.testing.assert_array_equal(other[name], values, err_msg=name)


@pytest.mark.parametrize("named", ["v-trace", "a memory"])
def test_a_narrow_batch_of_one_rank_gives_all_as_few_minibatches(named: str) -> None:
    def learn(group: Group) -> tuple[int, Mapping[str, np.ndarray]]:
        learner = _learner(_LOSSES[named], group=group)
        batch = _batch(learner, 4, width=(6, 2)[group.rank])
        return len(learner.learn(batch, minibatches=4)), _state(learner)

    (updates, state), (as_many, other) = run_ranks("lockstep", 2, learn)
    assert updates == as_many == 2
    for name, values in state.items():
        np.testing.assert_array_equal(other[name], values, err_msg=name)


def test_a_stop_of_one_rank_ends_the_batch_of_all_between_two_updates() -> None:
    def learn(group: Group) -> int:
        learner, looks = _learner(_LOSSES["ppo"], group=group), iter(range(100))
        worker = learner.make_worker()

        def check() -> None:
            if group.rank == 1 and next(looks) > 6:
                raise BatchStopped

        worker.watch(check)
        return len(learner.learn(_batch(learner, 4), worker, minibatches=2, epochs=4))

    counts = run_ranks("lockstep", 2, learn)
    assert counts[0] == counts[1] and 0 < counts[0] < 8


def test_learners_that_average_have_the_mean_of_weights_and_moments_and_the_sum_of_steps() -> None:
    def learn(group: Group) -> list[Mapping[str, np.ndarray]]:
        learner, states = _learner(_LOSSES["ppo"]), []
        for n in range(2):
            learner.learn(_batch(learner, 2 * n + group.rank), epochs=2)
            states.append(_state(learner))
            learner.state.average(group)
            states.append(_state(learner))
        return states

    ranks = run_ranks("lockstep", 2, learn)
    for before, after in ((0, 1), (2, 3)):
        for name, values in ranks[0][after].items():
            mine, its = ranks[0][before][name], ranks[1][before][name]
            mean = (mine + its) / 2 if values.dtype.kind == "f" else mine
            if name == "totals":  # learned steps: those of the last average and what each added
                first = 0.0 if before == 0 else ranks[0][1]["totals"][2]
                mean[2] = mine[2] + its[2] - first
            np.testing.assert_array_equal(values, mean, err_msg=name)
            np.testing.assert_array_equal(ranks[1][after][name], values, err_msg=name)
        assert not np.array_equal(
            ranks[0][before]["weights/policy.weight"], ranks[1][before]["weights/policy.weight"]
        )
