"""Distillation with wrong settings, unfit students, and failing trainings."""

from __future__ import annotations

import math
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
from tests.support.distillation import compress, distance, silenced, smaller

_WIDTHS = "expected list of whole numbers ≥ 1 or null"


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
        compress(distiller, overflowing(good), context)
    result = compress(distiller, good, context)
    assert context.memory(distiller.state_key)["steps"] == 20
    assert all(np.isfinite(tensor).all() for tensor in result.tensors.values())


def test_a_nan_that_an_actor_saw_is_not_published(small) -> None:
    observations = small.observations(small.flat, 8)
    observations[3, 2] = np.nan
    with pytest.raises(DivergedTraining, match="not finite"):
        compress(Distiller(smaller(small.flat)), small.policy(small.flat), context_of(observations))


def test_a_student_that_died_is_reported_and_another_one_begins(small) -> None:
    images = altered(small.images, activation="relu")
    student = smaller(images)
    context = context_of(small.observations(images, 64), seed=3)
    distiller = Distiller(student, first_steps=3, steps=2)
    policy = small.policy(images)
    first = compress(distiller, policy, context)
    memory = context.memory(distiller.state_key)
    memory["student"].network.load(silenced(first.tensors))
    with pytest.raises(DeadStudent, match=r"silent in all states after 5 steps; a new one begins"):
        compress(distiller, policy, context)
    assert distiller.gauges(memory)["deaths"] == 1.0
    again = compress(distiller, policy, context)
    assert memory["steps"] == 3
    # a different student: the same one might die again
    assert distance(again.tensors, first.tensors) > 0.05
    compress(distiller, policy, context)
    assert (memory["steps"], memory["deaths"]) == (5, 1)


def test_without_observations_there_is_nothing_to_learn_from(small) -> None:
    for observations in (None, small.observations(small.flat, 0)):
        with pytest.raises(NeedsObservations, match="distill needs observations"):
            compress(Distiller(), small.policy(small.flat), context_of(observations))
    assert Distiller().needs_observations


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            {"student": "accerl-nett1"},
            "student: expected one of nature, .*got 'accerl-nett1'; did you mean accerl-net1",
        ),
        ({"student": "resnet"}, "student: expected one of nature, .*got 'resnet'"),
        ({"student": "lstm-64"}, "student: 'lstm-64' is recurrent, .* no layer keeps a state"),
        ({"student": 4}, "student: expected one of nature, .*Architecture or null, got 4"),
        ({"steps": 0}, "steps: expected whole number ≥ 1, got 0"),
        ({"steps": 2.5}, r"steps: expected whole number ≥ 1, got 2\.5"),
        ({"steps": "four"}, "steps: expected whole number ≥ 1, got 'four'"),
        ({"batch": True}, "batch: expected whole number ≥ 1, got true"),
        ({"observations": 0}, "observations: expected whole number ≥ 1, got 0"),
        ({"renew_every": -1}, "renew_every: expected whole number ≥ 1"),
        ({"first_steps": 0}, "first_steps: expected whole number ≥ 1"),
        ({"learning_rate": 0.0}, "learning_rate: expected number > 0"),
        ({"learning_rate": math.nan}, "learning_rate: expected number > 0, got nan"),
        ({"time_limit_s": -1.0}, "time_limit_s: expected number > 0"),
        ({"max_grad_norm": math.inf}, "max_grad_norm: expected number > 0"),
        ({"value_cost": -0.5}, "value_cost: expected number ≥ 0"),
        ({"entropy_cost": "some"}, "entropy_cost: expected number ≥ 0"),
        ({"amp": "fp16"}, "amp: expected one of auto, bf16, off, got 'fp16'"),
        ({"hidden": [16]}, "hidden: replaces widths of a preset; name a student"),
        (
            {"student": "nature", "hidden": [0]},
            r"hidden\[0\]: expected list of whole numbers ≥ 1 or null, got 0",
        ),
        (
            {"student": "nature", "hidden": 16},
            "hidden: expected list of whole numbers ≥ 1 or null, got 16",
        ),
        (
            {"student": "nature", "hidden": "16"},
            "hidden: expected list of whole numbers ≥ 1 or null, got '16'",
        ),
    ],
)
def test_wrong_settings_are_refused_with_what_was_expected(arguments, reason) -> None:
    with pytest.raises(ChainError, match=f"distill.{reason}"):
        Distiller(**arguments)


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


def test_its_place_is_before_what_makes_weights_coarse_or_graphs_static(small) -> None:
    graph = PolicyGraph(small.images)
    for wrong, reason in (
        (replace(graph, precision="int8"), "comes after the quantisation to int8"),
        (replace(graph, runtime="onnx", static=True), "comes after onnx"),
        (replace(graph, scale_folded=True), "comes after fuse"),
    ):
        with pytest.raises(ChainError, match=f"distill: {reason}.* put it before"):
            Distiller().plan(wrong)
