"""Students: how near they come to the teacher, what they keep from version to version."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from aclearn.policies import ResidualSection, describe_architecture
from aclearn.types import ObservationSpec, PolicyVersion
from compress import (
    ONNX,
    ArtifactRuntime,
    CompressorChain,
    Policy,
    PolicyGraph,
    parse_chain,
)
from compress.graphs.graph_network import GraphNetwork
from compress.methods.distiller import Distiller
from compress.methods.quantizer import Quantizer
from tests.support.acting import Acting
from tests.support.architectures import altered, parts_of
from tests.support.contexts import context_of
from tests.support.distillation import distance, kl_by_loops, pruned, smaller
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


@pytest.mark.parametrize("deep", ["teacher", "student", "both"])
def test_residual_networks_teach_and_learn_on_the_states_they_visit(small, deep) -> None:
    architecture = small.images if deep == "student" else small.residual
    student = smaller(architecture)
    if deep != "teacher":
        student = altered(student, convolutions=(), sections=(ResidualSection(6, (4,)),))
    policy, visited = small.policy(architecture), small.observations(architecture, 64, seed=1)
    context = context_of(visited, seed=2)
    distiller = Distiller(student, steps=200, first_steps=1, learning_rate=1e-2)
    teacher_logits, _ = reference(architecture, policy.tensors, visited)
    distances = []
    for _ in range(2):
        result = apply(distiller, policy, context)
        assert result.graph == PolicyGraph(student)
        logits, _ = reference(student, result.tensors, visited)
        distances.append(kl_by_loops(teacher_logits, logits))
    assert distances[0] > 0.1
    assert distances[1] < distances[0] / 5


def test_the_entropy_cost_keeps_the_student_from_the_certainty_of_its_teacher(small) -> None:
    policy = small.policy(small.flat)
    observations = small.observations(small.flat, 64)
    entropies = []
    for cost in (0.0, 1.0):
        distiller = Distiller(
            smaller(small.flat), first_steps=100, learning_rate=1e-2, entropy_cost=cost
        )
        result = apply(distiller, policy, context_of(observations))
        logits, _ = reference(smaller(small.flat), result.tensors, observations)
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        entropies.append(float(-(p * np.log(p)).sum(1).mean()))
    assert entropies[0] + 0.05 < entropies[1] <= math.log(4) + 1e-6


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


def test_a_factored_policy_can_be_the_student(small) -> None:
    original = small.policy(small.images)
    graph = PolicyGraph(small.images, ranks=(("hidden.0", 2),))
    rng = np.random.default_rng(0)
    tensors = {
        name: rng.normal(0, 0.2, spec.shape).astype(np.float32)
        for name, spec in graph.tensors(with_value=True).items()
    }
    context = context_of(small.observations(small.images, 64))
    context.begin(original)
    distiller = Distiller(first_steps=40, learning_rate=1e-2)
    result = distiller.compress(original.become(graph, tensors), context)
    assert result.graph == graph
    assert distance(result.tensors, tensors) > 0.01
    network = GraphNetwork(graph).load(result.tensors)
    x = torch.from_numpy(context.visited.observations["observation"])
    with torch.no_grad():
        before = GraphNetwork(graph).load(tensors)(x)[0].numpy()
        after = network(x)[0].numpy()
    teacher, _ = reference(
        small.images, original.tensors, context.visited.observations["observation"]
    )
    assert kl_by_loops(teacher, after) < kl_by_loops(teacher, before) / 5


def test_other_seeds_give_other_students(small) -> None:
    observations = small.observations(small.flat, 32)
    results = [
        apply(
            Distiller(smaller(small.flat), first_steps=2),
            small.policy(small.flat),
            context_of(observations, seed=seed),
        )
        for seed in (1, 2)
    ]
    assert distance(results[0].tensors, results[1].tensors) > 0.01


def test_bf16_and_fp32_students_are_near_to_each_other_and_both_are_float32(small) -> None:
    observations = small.observations(small.images, 64)
    results = []
    for amp in ("off", "bf16"):
        distiller = Distiller(smaller(small.images), first_steps=5, amp=amp)
        result = apply(distiller, small.policy(small.images), context_of(observations))
        assert {str(tensor.dtype) for tensor in result.tensors.values()} == {"float32"}
        results.append(result.tensors)
    # five steps of 1e-3: apart because bf16 rounds, by no more than the steps' length
    assert 0 < distance(*results) < 1e-2


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


@pytest.mark.parametrize(("last", "share"), [("int8", 0.03), (None, 1e-5)])
def test_what_actors_run_after_each_swap_is_the_student_of_the_new_version(
    small, last, share
) -> None:
    architecture, student = small.images, smaller(small.images)
    observations = small.observations(architecture, 64)
    distiller = Distiller(student, steps=40, batch=64, first_steps=60, learning_rate=3e-3)
    chain = CompressorChain().add(distiller)
    if last is not None:
        chain.add(Quantizer(last, calibrate_every=1))
    chain.add(ONNX())
    context, actor = context_of(observations), Acting(ArtifactRuntime(architecture))
    answers = []
    for version in (1, 2, 3):
        artifact = chain.compress(small.policy(architecture, version, version), context)
        actor.load(artifact)
        tensors = context.memory(distiller.state_key)["tensors"]
        assert all(t.flags.owndata and t.flags.c_contiguous for t in tensors.values())
        expected, _ = reference(student, tensors, observations)
        answers.append(actor.parameters(observations))
        assert np.abs(answers[-1] - expected).max() < share * np.abs(expected).max()
    # the students of two versions differ by more
    for one, other in itertools.pairwise(answers):
        assert np.abs(one - other).max() > 2 * share * np.abs(other).max()


@pytest.mark.parametrize(
    ("item", "name", "widths"),
    [
        ("distill", "distill", (512,)),
        ({"distill": {"student": "accerl-net2"}}, "distill=accerl-net2", (128,)),
        (
            {"distill": {"student": "accerl-net2", "hidden": [32, 16]}},
            "distill=accerl-net2-32-16",
            (32, 16),
        ),
    ],
)
def test_chains_name_students_by_their_presets(item, name, widths) -> None:
    images = ObservationSpec.plain((4, 84, 84), "uint8")
    policy = describe_architecture("nature", observation=images, actions=6)
    chain = parse_chain([item, "onnx"])
    assert chain.id == f"{name}>onnx"
    assert parts_of(chain.plan(policy).architecture).hidden == widths
