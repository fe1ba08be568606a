"""Students: how near they come to the teacher, what they keep from version to version."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aclearn.policies import ResidualSection
from aclearn.types import PolicyVersion
from compress import (
    ONNX,
    ChainError,
    CompressorChain,
    NeedsObservations,
    Policy,
    PolicyGraph,
)
from compress.errors import DeadStudent, DivergedTraining
from compress.methods.distiller import Distiller
from tests.support.architectures import altered
from tests.support.contexts import context_of
from tests.support.distillation import distance, kl_by_loops, pruned, silenced, smaller
from tests.support.random_policies import apply, reference


# flat: as wide as its teacher; six units reach about a tenth of the first distance and no less,
# above or below depending on the order of the batches
@pytest.mark.parametrize(("name", "hidden", "factor"), [("images", 12, 100), ("flat", 12, 10)])
def test_the_student_comes_near_to_the_teacher_on_states_it_never_saw(
    name, hidden, factor, small
) -> None:
    architecture = getattr(small, name)
    policy, student = small.policy(architecture), altered(smaller(architecture), hidden=(hidden,))
    context = context_of(small.observations(architecture, 256, seed=1), seed=2)
    distiller = Distiller(student, steps=100, first_steps=1, learning_rate=1e-2)
    unseen = small.observations(architecture, 64, seed=9)
    teacher_logits, teacher_values = reference(architecture, policy.tensors, unseen)

    def errors():
        result = apply(distiller, policy, context)
        assert result.at == policy.at and result.graph == PolicyGraph(student)
        logits, values = reference(student, result.tensors, unseen)
        return kl_by_loops(teacher_logits, logits), np.mean((values - teacher_values) ** 2)

    first_kl, first_value = errors()
    for _ in range(3):
        kl, value = errors()
    assert first_kl > 0.1
    assert kl < first_kl / factor
    assert value < first_value / 10


@pytest.mark.parametrize(("deep", "amp"), [("student", "off"), ("both", "bf16")])
def test_residual_networks_teach_and_learn_on_the_states_they_visit(small, deep, amp) -> None:
    architecture = small.images if deep == "student" else small.residual
    sections = (ResidualSection(6, (4,)),)
    student = altered(smaller(architecture), convolutions=(), sections=sections)
    policy, visited = small.policy(architecture), small.observations(architecture, 64, seed=1)
    context = context_of(visited, seed=2)
    distiller = Distiller(student, steps=200, first_steps=1, learning_rate=1e-2, amp=amp)
    teacher_logits, _ = reference(architecture, policy.tensors, visited)
    distances = []
    for _ in range(2):
        result = apply(distiller, policy, context)
        assert result.graph == PolicyGraph(student)
        assert {str(tensor.dtype) for tensor in result.tensors.values()} == {"float32"}
        logits, _ = reference(student, result.tensors, visited)
        distances.append(kl_by_loops(teacher_logits, logits))
    assert distances[0] > 0.1
    assert distances[1] < distances[0] / 5


def test_each_version_goes_on_from_the_last_ones_student_and_adam(small) -> None:
    context = context_of(small.observations(small.images, 64))
    distiller = Distiller(smaller(small.images), first_steps=30, steps=2)
    versions = [small.policy(small.images, seed, version=seed) for seed in (1, 2)]
    memory = context.memory(distiller.state_key)
    first = apply(distiller, versions[0], context)
    kept = {name: tensor.copy() for name, tensor in first.tensors.items()}
    adam = memory["student"].optimiser.state

    def taken():
        return {int(state["step"]) for state in adam.values()}

    assert taken() == {30} == {memory["steps"]}
    second = apply(distiller, versions[1], context)
    assert taken() == {32} == {memory["steps"]}
    # a step of Adam moves no weight by much more than the learning rate of 1e-3
    assert 0 < distance(first.tensors, second.tensors) < 5e-3
    # the published artifact is unchanged
    assert all(np.array_equal(first.tensors[name], kept[name]) for name in kept)


def test_statistics_are_means_over_the_steps_of_the_last_call(small) -> None:
    observations = small.observations(small.images, 16)
    policy, student = small.policy(small.images), smaller(small.images)
    context = context_of(observations, seed=5)
    distiller = Distiller(
        student,
        batch=16,
        first_steps=1,
        steps=1,
        renew_every=2,  # the first step of other data shifts the values
        amp="off",
        value_cost=0.25,
        entropy_cost=0.1,
    )
    start = apply(distiller, policy, context).tensors
    apply(distiller, policy, context)
    # the batch is all observations, so the loss before the second step is known
    (teacher, v), (logits, u) = (
        reference(a, t, observations) for a, t in ((small.images, policy.tensors), (student, start))
    )
    q = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    kl = kl_by_loops(teacher, logits)
    loss = kl + 0.25 * np.mean((v - u) ** 2) + 0.1 * np.mean((q * np.log(q)).sum(1))
    memory = context.memory(distiller.state_key)
    assert memory["kl"] == pytest.approx(kl, rel=1e-4)
    assert memory["loss"] == pytest.approx(loss, rel=1e-4)
    chain = CompressorChain().add(distiller)
    again = context_of(observations, seed=5)
    assert chain.gauges(again) == {}
    for _ in range(2):
        chain.compress(policy, again)
    expected = {"distill_kl": kl, "distill_loss": loss, "distill_steps": 2.0, "distill_deaths": 0.0}
    assert chain.gauges(again) == pytest.approx(expected, rel=1e-4)


def test_without_a_student_the_incoming_policy_is_trained_from_its_own_weights(small) -> None:
    context = context_of(small.observations(small.images, 64))
    distiller = Distiller(first_steps=1, steps=1, learning_rate=1e-5)
    original = small.policy(small.images)
    incoming, later = pruned(original, small, 3), pruned(original, small, 4)
    context.begin(original)
    first = distiller.compress(incoming, context)
    assert first.graph == incoming.graph
    assert 0 < distance(first.tensors, incoming.tensors) < 1e-4
    # the graph is the same: the student continues
    again = distiller.compress(later, context)
    assert 0 < distance(again.tensors, first.tensors) < 1e-4
    # another graph: from the incoming weights
    changed = distiller.compress(original, context)
    assert changed.graph == original.graph
    assert 0 < distance(changed.tensors, original.tensors) < 1e-4
    # and back: the first student is lost
    back = distiller.compress(later, context)
    assert 0 < distance(back.tensors, later.tensors) < 1e-4


def test_a_teacher_whose_values_move_as_a_whole_is_followed_at_once(small) -> None:
    observations = small.observations(small.images, 16)
    policy, context = small.policy(small.images), context_of(observations)
    distiller = Distiller(smaller(small.images), batch=16, first_steps=1, steps=1, renew_every=1)
    apply(distiller, policy, context)
    moved = dict(policy.tensors) | {"value.bias": policy.tensors["value.bias"] + np.float32(40.0)}
    result = apply(distiller, Policy.of(small.images, moved, PolicyVersion(0, 2)), context)
    _, wanted = reference(small.images, moved, observations)
    _, values = reference(smaller(small.images), result.tensors, observations)
    # except one step of Adam
    assert abs(values.mean() - wanted.mean()) < 0.2
    # likewise a constant teacher, by a new student
    resting, context = (
        Distiller(batch=16, first_steps=1, steps=1, renew_every=100),
        context_of(observations),
    )
    context.begin(policy)
    resting.compress(pruned(policy, small, 3), context)
    resting.compress(policy.become(policy.graph, moved), context)
    values = context.memory(resting.state_key)["tensors"]["value.bias"]
    assert abs(values - policy.tensors["value.bias"]) < 2.0
    # without a use for values it does not follow them
    idle = Distiller(smaller(small.images), batch=16, first_steps=1, steps=1, value_cost=0.0)
    result = apply(
        idle, Policy.of(small.images, moved, PolicyVersion(0, 3)), context_of(observations)
    )
    assert abs(result.tensors["value.bias"]) < 1.0


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
    assert context.restarts == 0
    again = apply(distiller, policy, context)
    assert context.restarts == 1  # for the links after it
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
