"""Distillation with wrong settings, unfit students, and failing trainings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aclearn.types import PolicyVersion
from compress import (
    ONNX,
    ChainError,
    CompressorChain,
    NeedsObservations,
    PolicyGraph,
)
from compress.errors import DeadStudent, DivergedTraining
from compress.methods.distiller import Distiller
from tests.support.architectures import altered
from tests.support.contexts import context_of
from tests.support.distillation import distance, silenced, smaller
from tests.support.random_policies import apply


def overflowing(policy):
    """Finite weights whose activations are not."""
    name = next(iter(policy.tensors))
    huge = np.full_like(policy.tensors[name], 3e38)
    return replace(policy, tensors={**policy.tensors, name: huge}, at=PolicyVersion(0, 99))


@pytest.mark.parametrize("renew_every", [1, 100])
def test_a_training_that_diverges_publishes_nothing_and_the_last_student_goes_on(
    small, renew_every
) -> None:
    architecture = altered(small.images, activation="relu")
    context = context_of(small.observations(architecture, 32))
    distiller = Distiller(
        smaller(architecture), first_steps=20, steps=2, renew_every=renew_every, learning_rate=1e-4
    )
    chain = CompressorChain().add(distiller).add(ONNX())
    good = small.policy(architecture)
    chain.compress(good, context)
    memory = context.memory(distiller.state_key)
    before = {name: tensor.copy() for name, tensor in memory["tensors"].items()}
    spoilt = overflowing(good)
    memory.pop("data")  # so that the next one is the spoilt one, at any renewal
    with pytest.raises(
        DivergedTraining, match=r"distill=\w+: .* after 0 steps .* not finite.*last good student"
    ):
        chain.compress(spoilt, context)
    assert distance(memory["tensors"], before) == 0.0
    artifact = chain.compress(replace(good, at=PolicyVersion(0, 100)), context)
    assert artifact.at.version == 100
    assert 0 < distance(memory["tensors"], before) < 1e-3
    # Adam was restarted, the student was not
    assert {int(s["step"]) for s in memory["student"].optimiser.state.values()} == {2}
    assert memory["steps"] == 22


def test_when_the_first_training_diverges_the_next_one_begins_from_the_start(small) -> None:
    context = context_of(small.observations(small.images, 32))
    distiller = Distiller(smaller(small.images), first_steps=20, steps=2)
    good = small.policy(small.images)
    with pytest.raises(DivergedTraining):
        apply(distiller, overflowing(good), context)
    result = apply(distiller, good, context)
    assert context.memory(distiller.state_key)["steps"] == 20
    assert all(np.isfinite(tensor).all() for tensor in result.tensors.values())


def test_a_nan_that_an_actor_saw_is_not_published(small) -> None:
    observations = small.observations(small.flat, 8)
    observations[3, 2] = np.nan
    with pytest.raises(DivergedTraining, match="not finite"):
        apply(Distiller(smaller(small.flat)), small.policy(small.flat), context_of(observations))


def test_a_student_that_died_is_reported_and_another_one_begins(small) -> None:
    images = altered(small.images, activation="relu")
    student = smaller(images)
    context = context_of(small.observations(images, 64), seed=3)
    distiller = Distiller(student, first_steps=3, steps=2)
    policy = small.policy(images)
    first = apply(distiller, policy, context)
    memory = context.memory(distiller.state_key)
    memory["student"].network.load(silenced(first.tensors))
    with pytest.raises(DeadStudent, match=r"silent in all states after 5 steps; a new one begins"):
        apply(distiller, policy, context)
    assert distiller.gauges(memory)["deaths"] == 1.0
    again = apply(distiller, policy, context)
    assert memory["steps"] == 3
    # a different student: the same one might die again
    assert distance(again.tensors, first.tensors) > 0.05
    apply(distiller, policy, context)
    assert (memory["steps"], memory["deaths"]) == (5, 1)


def test_without_observations_there_is_nothing_to_learn_from(small) -> None:
    for observations in (None, small.observations(small.flat, 0)):
        with pytest.raises(NeedsObservations, match="distill needs observations"):
            apply(Distiller(), small.policy(small.flat), context_of(observations))
    assert Distiller().needs_observations


def test_a_student_that_does_not_fit_the_policy_is_refused(small) -> None:
    graph = PolicyGraph(small.images)
    for student, reason in (
        ("nature", r"needs images of at least 36×36 .* uint8 \(2, 12, 12\)"),
        (altered(small.images, actions=4), "4 actions, expected those of the policy, .* 3 actions"),
        (altered(small.images, observation_shape=(1, 12, 12)), r"\(1, 12, 12\) → 3 actions"),
        (altered(small.images, observation_dtype="float32"), "the student has float32 "),
    ):
        with pytest.raises(ChainError, match=reason):
            Distiller(student).plan(graph)
    with pytest.raises(ChainError, match="needs images"):
        Distiller("nature").plan(PolicyGraph(small.flat))
