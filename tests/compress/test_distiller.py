"""Distillation: the loss, the student's way to the teacher, and what is kept between versions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from aclearn.policies import Convolution, PolicyVersion, ResidualSection, describe_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors, tensors_of
from compress import (
    ONNX,
    ArtifactPolicy,
    ChainError,
    CompressorChain,
    Context,
    NeedsObservations,
    Policy,
    PolicyGraph,
    check_compressor,
    parse_chain,
)
from compress.distillation import Student, distillation_loss, one_signed_layers
from compress.distiller import Distiller
from compress.errors import DeadStudent, DivergedTraining
from compress.network import GraphNetwork
from compress.quantizer import Quantizer


def smaller(architecture):
    """A student for the architecture."""
    if not architecture.convolves:
        return replace(architecture, hidden=(6,), separate_value=False)
    return replace(architecture, convolutions=(Convolution(4, 4, 2),), hidden=(12,), sections=())


def outputs(architecture, tensors, observations):
    """Logits and values in float64 from the module that the trainer learns with."""
    network = PolicyNetwork(architecture, seed=0)
    load_tensors(network, tensors)
    network._scale = None
    x = torch.from_numpy(observations).double()
    with torch.no_grad():
        scaled = x / 255.0 if architecture.observation_dtype == "uint8" else x
        logits, values = network.double()(scaled)
    return logits.numpy(), values.numpy()


def kl_by_loops(teacher_logits, logits):
    """Mean KL(teacher ‖ student), state by state, action by action."""
    total = 0.0
    for teacher_row, row in zip(teacher_logits.tolist(), logits.tolist(), strict=True):
        p = [math.exp(x - max(teacher_row)) for x in teacher_row]
        q = [math.exp(x - max(row)) for x in row]
        for a, b in zip(p, q, strict=True):
            total += a / sum(p) * math.log((a / sum(p)) / (b / sum(q)))
    return total / len(logits)


def compress(distiller, policy, context):
    context.begin(policy)
    return distiller.compress(policy, context)


def distance(a, b):
    """Largest difference between two networks' weights, but the value's bias: it may jump."""
    return max(float(np.abs(a[name] - b[name]).max()) for name in a if name != "value.bias")


def test_the_loss_is_equation_1_summed_up_by_loops() -> None:
    rng = np.random.default_rng(0)
    logits, teacher_logits = rng.normal(0, 2, (2, 7, 5))
    values, teacher_values = rng.normal(0, 3, (2, 7))
    beta, cost = 0.03, 0.5
    entropy = 0.0
    for row in logits:
        q = np.exp(row) / np.exp(row).sum()
        entropy -= float(sum(x * math.log(x) for x in q)) / 7
    squares = sum((a - b) ** 2 for a, b in zip(teacher_values, values, strict=True)) / 7
    kl = kl_by_loops(teacher_logits, logits)
    loss = distillation_loss(
        logits=torch.tensor(logits),
        values=torch.tensor(values),
        teacher_logits=torch.tensor(teacher_logits),
        teacher_values=torch.tensor(teacher_values),
        value_cost=cost,
        entropy_cost=beta,
    )
    assert float(loss.kl) == pytest.approx(kl, rel=1e-5)
    assert float(loss.value) == pytest.approx(squares, rel=1e-5)
    assert float(loss.entropy) == pytest.approx(entropy, rel=1e-5)
    assert float(loss.total) == pytest.approx(kl + 0.5 * squares - beta * entropy, rel=1e-5)


def test_the_gradient_pulls_probabilities_and_values_to_the_teacher() -> None:
    # ∂KL/∂logits = π_student − π_teacher and ∂ ½ (v_t − v)² / ∂v = v − v_t, a mean over the states
    rng = np.random.default_rng(1)
    teacher_logits, teacher_values = torch.tensor(rng.normal(size=(4, 3))), torch.zeros(4)
    logits = torch.tensor(rng.normal(size=(4, 3)), dtype=torch.float32, requires_grad=True)
    values = torch.arange(4.0, requires_grad=True)
    distillation_loss(
        logits=logits, values=values, teacher_logits=teacher_logits, teacher_values=teacher_values
    ).total.backward()
    expected = (logits.detach().softmax(1) - teacher_logits.softmax(1)) / 4
    np.testing.assert_allclose(logits.grad.numpy(), expected.numpy(), atol=1e-6)
    np.testing.assert_allclose(values.grad.numpy(), np.arange(4.0) / 4, atol=1e-6)


@pytest.mark.parametrize("name", ["images", "flat"])
def test_the_student_comes_near_to_the_teacher_on_states_it_never_saw(name, small) -> None:
    architecture = getattr(small, name)
    policy, student = small.policy(architecture), smaller(architecture)
    context = Context(small.observations(architecture, 256, seed=1), seed=2)
    distiller = Distiller(student, steps=100, first_steps=1, learning_rate=1e-2)
    unseen = small.observations(architecture, 64, seed=9)
    teacher_logits, teacher_values = outputs(architecture, policy.tensors, unseen)

    def errors():
        result = compress(distiller, policy, context)
        assert result.at == policy.at and result.graph == PolicyGraph(student)
        logits, values = outputs(student, result.tensors, unseen)
        return kl_by_loops(teacher_logits, logits), np.mean((values - teacher_values) ** 2)

    first_kl, first_value = errors()
    for _ in range(4):
        kl, value = errors()
    assert first_kl > 0.1
    assert kl < first_kl / 10
    assert value < first_value / 10


@pytest.mark.parametrize("deep", ["teacher", "student", "both"])
def test_residual_networks_teach_and_learn_on_the_states_they_visit(small, deep) -> None:
    architecture = small.images if deep == "student" else small.residual
    student = smaller(architecture)
    if deep != "teacher":
        student = replace(student, convolutions=(), sections=(ResidualSection(6, (4,)),))
    policy, visited = small.policy(architecture), small.observations(architecture, 64, seed=1)
    context = Context(visited, seed=2)
    distiller = Distiller(student, steps=200, first_steps=1, learning_rate=1e-2)
    teacher_logits, _ = outputs(architecture, policy.tensors, visited)
    distances = []
    for _ in range(2):
        result = compress(distiller, policy, context)
        assert result.graph == PolicyGraph(student)
        logits, _ = outputs(student, result.tensors, visited)
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
        result = compress(distiller, policy, Context(observations))
        logits, _ = outputs(smaller(small.flat), result.tensors, observations)
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        entropies.append(float(-(p * np.log(p)).sum(1).mean()))
    assert entropies[0] + 0.05 < entropies[1] <= math.log(4) + 1e-6


def test_each_version_goes_on_from_the_last_ones_student_and_adam(small) -> None:
    context = Context(small.observations(small.images, 64))
    distiller = Distiller(smaller(small.images), first_steps=30, steps=2)
    versions = [small.policy(small.images, seed, version=seed) for seed in (1, 2)]
    memory = context.memory(distiller.owner)
    first = compress(distiller, versions[0], context)
    kept = {name: tensor.copy() for name, tensor in first.tensors.items()}
    adam = memory["student"].optimiser.state

    def taken():
        return {int(state["step"]) for state in adam.values()}

    assert taken() == {30} == {memory["steps"]}
    second = compress(distiller, versions[1], context)
    assert taken() == {32} == {memory["steps"]}
    # a step of Adam moves no weight by much more than the learning rate of 5e-4
    assert 0 < distance(first.tensors, second.tensors) < 2.5e-3
    # what was published stays as it was
    assert all(np.array_equal(first.tensors[name], kept[name]) for name in kept)


def test_statistics_are_means_over_the_steps_of_the_last_call(small) -> None:
    observations = small.observations(small.images, 16)
    policy, student = small.policy(small.images), smaller(small.images)
    context = Context(observations, seed=5)
    distiller = Distiller(
        student, batch=16, first_steps=1, steps=1, amp="off", value_cost=0.25, entropy_cost=0.1
    )
    start = compress(distiller, policy, context).tensors
    compress(distiller, policy, context)
    # the batch is all observations, so the loss before the second step can be said
    (teacher, v), (logits, u) = (
        outputs(a, t, observations) for a, t in ((small.images, policy.tensors), (student, start))
    )
    q = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    kl = kl_by_loops(teacher, logits)
    loss = kl + 0.25 * np.mean((v - u) ** 2) + 0.1 * np.mean((q * np.log(q)).sum(1))
    memory = context.memory(distiller.owner)
    assert memory["kl"] == pytest.approx(kl, rel=1e-4)
    assert memory["loss"] == pytest.approx(loss, rel=1e-4)
    chain = CompressorChain().add(distiller)
    again = Context(observations, seed=5)
    assert chain.gauges(again) == {}
    for _ in range(2):
        chain.compress(policy, again)
    expected = {"distill_kl": kl, "distill_loss": loss, "distill_steps": 2.0, "distill_deaths": 0.0}
    assert chain.gauges(again) == pytest.approx(expected, rel=1e-4)


def pruned(policy, small, seed):
    """What a link before might have made: the same observations, fewer filters and units."""
    architecture = replace(
        policy.graph.architecture, convolutions=(Convolution(3, 4, 2),), hidden=(7,)
    )
    return policy.become(PolicyGraph(architecture), small.tensors(architecture, seed))


def test_without_a_student_the_incoming_policy_is_trained_from_its_own_weights(small) -> None:
    context = Context(small.observations(small.images, 64))
    distiller = Distiller(first_steps=1, steps=1, learning_rate=1e-5)
    original = small.policy(small.images)
    incoming, later = pruned(original, small, 3), pruned(original, small, 4)
    context.begin(original)
    first = distiller.compress(incoming, context)
    assert first.graph == incoming.graph
    assert 0 < distance(first.tensors, incoming.tensors) < 1e-4
    # the graph is the same: the student goes on and does not start again from new weights
    again = distiller.compress(later, context)
    assert 0 < distance(again.tensors, first.tensors) < 1e-4
    # another graph: from the incoming weights
    changed = distiller.compress(original, context)
    assert changed.graph == original.graph
    assert 0 < distance(changed.tensors, original.tensors) < 1e-4
    # and back: the first student is forgotten
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
    context = Context(small.observations(small.images, 64))
    context.begin(original)
    distiller = Distiller(first_steps=40, learning_rate=1e-2)
    result = distiller.compress(original.become(graph, tensors), context)
    assert result.graph == graph
    assert distance(result.tensors, tensors) > 0.01
    network = GraphNetwork(graph).load(result.tensors)
    x = torch.from_numpy(context.observations)
    with torch.no_grad():
        before = GraphNetwork(graph).load(tensors)(x)[0].numpy()
        after = network(x)[0].numpy()
    teacher, _ = outputs(small.images, original.tensors, context.observations)
    assert kl_by_loops(teacher, after) < kl_by_loops(teacher, before) / 5


def test_the_teacher_is_the_original_and_rests_between_renewals(small) -> None:
    context = Context(small.observations(small.images, 8))
    distiller = Distiller(smaller(small.images), steps=1, first_steps=1, renew_every=3)
    taught = []
    for version in range(1, 8):
        context.begin(small.policy(small.images, seed=version, version=version))
        distiller.compress(pruned(context.original, small, 1), context)
        taught.append(context.memory(distiller.owner)["teacher"].policy.bias.numpy().copy())
    biases = [small.tensors(small.images, seed)["policy.bias"] for seed in (1, 1, 1, 4, 4, 4, 7)]
    np.testing.assert_array_equal(taught, biases)


@pytest.mark.parametrize(("renew_every", "follows"), [(1, True), (1000, False)])
def test_a_student_learns_from_the_teacher_that_is_kept(small, renew_every, follows) -> None:
    observations = small.observations(small.flat, 64)
    context = Context(observations)
    distiller = Distiller(
        smaller(small.flat), first_steps=1, steps=60, learning_rate=1e-2, renew_every=renew_every
    )
    old, new = (small.policy(small.flat, seed, version=seed) for seed in (1, 2))
    compress(distiller, old, context)
    for _ in range(4):
        result = compress(distiller, new, context)
    logits, _ = outputs(smaller(small.flat), result.tensors, observations)
    to_old, to_new = (
        kl_by_loops(outputs(small.flat, p.tensors, observations)[0], logits) for p in (old, new)
    )
    assert (to_new < to_old / 3) if follows else (to_old < to_new / 3)


@pytest.mark.parametrize(
    ("budget_s", "first", "later"),
    [(None, 40, 20), (2.5, 25, 3), (0.5, 5, 1), (1e-9, 1, 1), (1e9, 40, 20)],
)
def test_a_budget_ends_the_training_after_the_step_in_which_it_is_used_up(
    small, budget_s, first, later
) -> None:
    ticks = itertools.count()  # a second passes between two looks at the clock
    context = Context(small.observations(small.flat, 8), clock=lambda: float(next(ticks)))
    distiller = Distiller(smaller(small.flat), steps=20, first_steps=40, budget_s=budget_s, batch=4)
    steps = []
    for version in (1, 2, 3):
        compress(distiller, small.policy(small.flat, version=version), context)
        steps.append(context.memory(distiller.owner)["steps"])
    assert steps == [first, first + later, first + 2 * later]


def test_a_new_student_gets_ten_times_the_steps_by_default(small) -> None:
    context = Context(small.observations(small.flat, 8))
    distiller = Distiller(smaller(small.flat), steps=3)
    compress(distiller, small.policy(small.flat), context)
    assert context.memory(distiller.owner)["steps"] == 30


def test_every_observation_is_seen_once_before_any_is_seen_again(small) -> None:
    from compress.distiller import _batches

    rng = np.random.default_rng(0)
    batches = list(itertools.islice(_batches(10, 3, rng), 6))
    assert [len(batch) for batch in batches] == [3] * 6
    for one_pass in (batches[:3], batches[3:]):
        seen = np.concatenate(one_pass)
        assert len(set(seen.tolist())) == 9 and seen.max() < 10
    few = list(itertools.islice(_batches(2, 64, rng), 2))
    assert [sorted(batch.tolist()) for batch in few] == [[0, 1], [0, 1]]


def test_each_call_draws_other_observations(small) -> None:
    context = Context(small.observations(small.flat, 64))
    distiller = Distiller(
        smaller(small.flat), steps=1, first_steps=1, batch=1, learning_rate=1e-12, amp="off"
    )
    found = set()
    for _ in range(5):  # the student stands still, so its divergence tells the observation
        compress(distiller, small.policy(small.flat), context)
        found.add(round(context.memory(distiller.owner)["kl"], 6))
    assert len(found) > 2


@pytest.mark.parametrize("student", ["smaller", None])
def test_it_keeps_the_contract_of_a_link(architecture, student) -> None:
    made = smaller(architecture) if student else None
    check_compressor(Distiller(made, steps=2, first_steps=3, batch=16), architecture)


def test_a_preset_keeps_the_contract_of_a_link() -> None:
    check_compressor(Distiller("accerl-net3", steps=1, first_steps=2, batch=8, hidden=(16,)))


def test_other_seeds_give_other_students(small) -> None:
    observations = small.observations(small.flat, 32)
    results = [
        compress(
            Distiller(smaller(small.flat), first_steps=2),
            small.policy(small.flat),
            Context(observations, seed=seed),
        )
        for seed in (1, 2)
    ]
    assert distance(results[0].tensors, results[1].tensors) > 0.01


def test_bf16_and_fp32_students_are_near_to_each_other_and_both_are_float32(small) -> None:
    observations = small.observations(small.images, 64)
    results = []
    for amp in ("off", "bf16"):
        distiller = Distiller(smaller(small.images), first_steps=5, amp=amp)
        result = compress(distiller, small.policy(small.images), Context(observations))
        assert {str(tensor.dtype) for tensor in result.tensors.values()} == {"float32"}
        results.append(result.tensors)
    # five steps of 1e-3: apart because bf16 rounds, by no more than the way that was gone
    assert 0 < distance(*results) < 1e-2


def test_values_that_differ_by_less_than_bf16_tells_apart_are_learned_in_bf16(small) -> None:
    # nothing but the values' biases is left; in bf16 100.3 would be 100.5
    graph = PolicyGraph(small.images)
    zeros = {n: np.zeros(s.shape, s.dtype) for n, s in graph.tensors(with_value=True).items()}
    teacher, mine = (
        {**zeros, "value.bias": np.array([value], np.float32)} for value in (100.3, 100.0)
    )
    student = Student(
        graph,
        mine,
        learning_rate=1e-3,
        value_cost=0.5,
        entropy_cost=0.0,
        max_grad_norm=1.0,
        amp_dtype=torch.bfloat16,
    )
    loss = student.learn(small.observations(small.images, 6), GraphNetwork(graph).load(teacher))
    assert float(loss.value) == pytest.approx(0.3**2, rel=1e-3)
    assert float(loss.kl) == 0.0


def overflowing(policy):
    """Finite weights whose activations are not."""
    name = next(iter(policy.tensors))
    huge = np.full_like(policy.tensors[name], 3e38)
    return replace(policy, tensors={**policy.tensors, name: huge}, at=PolicyVersion(0, 99))


@pytest.mark.parametrize("renew_every", [1, 100])
def test_a_training_that_diverges_publishes_nothing_and_the_last_student_goes_on(
    small, renew_every
) -> None:
    architecture = replace(small.images, activation="relu")
    context = Context(small.observations(architecture, 32))
    distiller = Distiller(
        smaller(architecture), first_steps=20, steps=2, renew_every=renew_every, learning_rate=1e-4
    )
    chain = CompressorChain().add(distiller).add(ONNX())
    good = small.policy(architecture)
    chain.compress(good, context)
    memory = context.memory(distiller.owner)
    before = {name: tensor.copy() for name, tensor in memory["tensors"].items()}
    spoilt = overflowing(good)
    memory.pop("teacher")  # so that the next one is the spoilt one, whenever it is renewed
    with pytest.raises(
        DivergedTraining, match=r"distill=\w+: .* after 0 steps .* not finite.*last good student"
    ):
        chain.compress(spoilt, context)
    assert distance(memory["tensors"], before) == 0.0
    artifact = chain.compress(replace(good, at=PolicyVersion(0, 100)), context)
    assert artifact.at.version == 100
    assert 0 < distance(memory["tensors"], before) < 1e-3
    # Adam began anew, the student did not
    assert {int(s["step"]) for s in memory["student"].optimiser.state.values()} == {2}
    assert memory["steps"] == 22


def test_when_the_first_training_diverges_the_next_one_begins_anew(small) -> None:
    context = Context(small.observations(small.images, 32))
    distiller = Distiller(smaller(small.images), first_steps=20, steps=2)
    good = small.policy(small.images)
    with pytest.raises(DivergedTraining):
        compress(distiller, overflowing(good), context)
    result = compress(distiller, good, context)
    assert context.memory(distiller.owner)["steps"] == 20
    assert all(np.isfinite(tensor).all() for tensor in result.tensors.values())


def test_a_nan_that_an_actor_saw_is_not_published(small) -> None:
    observations = small.observations(small.flat, 8)
    observations[3, 2] = np.nan
    with pytest.raises(DivergedTraining, match="not finite"):
        compress(Distiller(smaller(small.flat)), small.policy(small.flat), Context(observations))


def silenced(tensors):
    """The same weights, but that no unit of the first layer ever lets anything through."""
    name = next(name for name in tensors if name.endswith(".bias"))
    return {**tensors, name: np.full_like(tensors[name], -1e3)}


def test_a_student_that_died_is_reported_and_another_one_begins(small) -> None:
    images = replace(small.images, activation="relu")
    student = smaller(images)
    context = Context(small.observations(images, 64), seed=3)
    distiller = Distiller(student, first_steps=3, steps=2)
    policy = small.policy(images)
    first = compress(distiller, policy, context)
    memory = context.memory(distiller.owner)
    memory["student"].network.load(silenced(first.tensors))
    with pytest.raises(DeadStudent, match=r"silent in all states after 5 steps; a new one begins"):
        compress(distiller, policy, context)
    assert distiller.gauges(memory)["deaths"] == 1.0
    again = compress(distiller, policy, context)
    assert memory["steps"] == 3
    # another one, not the same again, which might die as that one did
    assert distance(again.tensors, first.tensors) > 0.05
    compress(distiller, policy, context)
    assert (memory["steps"], memory["deaths"]) == (5, 1)


def test_a_student_that_has_nothing_to_learn_is_not_dead(small) -> None:
    graph, tensors = PolicyGraph(small.images), small.policy(small.images).tensors
    settings = {"learning_rate": 1e-3, "value_cost": 0.0, "entropy_cost": 0.0}
    student = Student(graph, tensors, **settings, max_grad_norm=1.0, amp_dtype=None)
    observations = small.observations(small.images, 8)
    # both so sure of an action that float32 knows no other: the gradient is zero to the last bit
    sure = tensors | {"policy.bias": np.float32([300.0, 0.0, 0.0])}
    student.network.load(sure)
    student.learn(observations, GraphNetwork(graph).load(sure))
    assert all(not parameter.grad.any() for parameter in student.network.policy.parameters())
    assert student.alive
    student.network.load(tensors)
    other = small.policy(small.images, seed=5).tensors
    student.learn(observations, GraphNetwork(graph).load(other))
    assert student.alive
    student.network.load(silenced(tensors))
    student.learn(observations, GraphNetwork(graph).load(other))
    assert not student.alive
    # black screens, as when a game begins: who is silent there may well see something elsewhere
    student.learn(np.zeros_like(observations), GraphNetwork(graph).load(other))
    assert student.alive


@pytest.mark.parametrize(
    ("name", "activation", "expected"),
    [
        ("images", "relu", ["convolutions.0", "convolutions.1", "hidden.0", "hidden.1"]),
        # of the others only pixels are never negative
        ("images", "tanh", ["convolutions.0"]),
        ("flat", "tanh", []),
        ("flat", "relu", ["hidden.1", "value_hidden.1"]),
    ],
)
def test_layers_that_read_nothing_negative_are_known(small, name, activation, expected) -> None:
    architecture = replace(getattr(small, name), activation=activation)
    assert list(one_signed_layers(PolicyGraph(architecture))) == expected


def test_what_residual_layers_read_may_be_negative_but_after_their_activation(small) -> None:
    graph = PolicyGraph(small.residual)
    # a block's two convolutions, and what reads pixels or the ReLU behind the last section; not
    # those that open a later section: they read sums
    found = set(one_signed_layers(graph))
    hidden = [layer for layer in graph.layers() if layer.name != "policy"]
    openers = [layer.name for layer in hidden if layer.pooled]
    assert len(openers) == 2
    assert {layer.name for layer in hidden} - found == set(openers[1:])


def test_gradients_are_centred_where_inputs_have_one_sign_and_nowhere_else(small) -> None:
    architecture, learner = small.images, small.policy(small.images, seed=7).tensors
    observations = small.observations(architecture, 8)
    teacher = small.policy(architecture, seed=8).tensors
    student = Student(
        PolicyGraph(architecture),
        learner,
        learning_rate=1e-3,
        value_cost=0.5,
        entropy_cost=0.0,
        max_grad_norm=1e9,
        amp_dtype=None,
    )
    student.learn(observations, GraphNetwork(PolicyGraph(architecture)).load(teacher))
    # the same gradient from the trainer's module and the loss in its own words
    network = PolicyNetwork(architecture, seed=0)
    load_tensors(network, learner)
    logits, values = network(torch.from_numpy(observations))
    (teacher_logits, teacher_values) = (
        torch.tensor(x) for x in outputs(architecture, teacher, observations)
    )
    p = teacher_logits.softmax(1)
    kl = (p * (p.log() - logits.log_softmax(1))).sum(1).mean()
    (kl + 0.5 * ((teacher_values - values) ** 2).mean()).backward()
    for name, parameter in network.named_parameters():
        expected = parameter.grad.numpy().copy()
        if name.endswith("weight") and name not in ("policy.weight", "value.weight"):
            expected -= expected.mean(tuple(range(1, expected.ndim)), keepdims=True)
        found = student.network.get_parameter(name).grad.numpy()
        np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max() + 1e-7)


def test_a_teacher_whose_values_move_as_a_whole_is_followed_at_once(small) -> None:
    observations = small.observations(small.images, 16)
    policy, context = small.policy(small.images), Context(observations)
    distiller = Distiller(smaller(small.images), batch=16, first_steps=1, steps=1)
    compress(distiller, policy, context)
    moved = dict(policy.tensors) | {"value.bias": policy.tensors["value.bias"] + np.float32(40.0)}
    result = compress(distiller, Policy.of(small.images, moved, PolicyVersion(0, 2)), context)
    _, wanted = outputs(small.images, moved, observations)
    _, values = outputs(smaller(small.images), result.tensors, observations)
    # but for the one step of Adam
    assert abs(values.mean() - wanted.mean()) < 0.2
    # so is a teacher that rests, by a student that is new
    resting, context = (
        Distiller(batch=16, first_steps=1, steps=1, renew_every=100),
        Context(observations),
    )
    context.begin(policy)
    resting.compress(pruned(policy, small, 3), context)
    resting.compress(policy.become(policy.graph, moved), context)
    values = context.memory(resting.owner)["tensors"]["value.bias"]
    assert abs(values - policy.tensors["value.bias"]) < 2.0
    # who has no use for values does not follow them
    idle = Distiller(smaller(small.images), batch=16, first_steps=1, steps=1, value_cost=0.0)
    result = compress(
        idle, Policy.of(small.images, moved, PolicyVersion(0, 3)), Context(observations)
    )
    assert abs(result.tensors["value.bias"]) < 1.0


class Drifting(torch.nn.Module):
    """A teacher of the first minutes: it acts alike everywhere, and its values fall as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self._noise = 0.0, torch.Generator().manual_seed(0)

    def forward(self, x):
        return torch.zeros(len(x), 6), self.value + 0.05 * torch.randn(
            len(x), generator=self._noise
        )


def pong_screens(rng, count):
    """Two paddles and a ball on a bright ground: hardly a pixel differs between two of them."""
    screens = np.full((count, 4, 84, 84), 87, np.uint8)
    places = rng.integers(0, 76, (count, 4))
    for screen, (mine, other, y, x) in zip(screens, places, strict=True):
        screen[:, mine : mine + 8, 70:73] = 147
        screen[:, other : other + 8, 10:13] = 213
        for frame in range(4):
            across = (x + 2 * frame) % 80
            screen[frame, y : y + 2, across : across + 2] = 236
    return screens


def units_that_live(student, screens):
    """Of the last hidden layer: how many are not silent on all of the screens."""
    found = []
    hidden = student.network.get_submodule("hidden.0")
    hook = hidden.register_forward_hook(lambda module, given, made: found.append(made))
    with torch.no_grad():
        student.network(torch.from_numpy(screens))
    hook.remove()
    return int((found[0] > 0).any(0).sum())


@pytest.mark.parametrize("seed", [1, 2])
def test_a_student_keeps_its_units_while_its_teacher_s_values_drift(seed) -> None:
    # without centred gradients and a value that follows at once a quarter of them is left
    architecture = describe_architecture(
        "accerl-net1", observation_shape=(4, 84, 84), observation_dtype="uint8", actions=6
    )
    student = Student(
        PolicyGraph(architecture),
        tensors_of(PolicyNetwork(architecture, seed=seed)),
        learning_rate=5e-4,
        value_cost=0.5,
        entropy_cost=0.0,
        max_grad_norm=1.0,
        amp_dtype=None,
    )
    rng = np.random.default_rng(seed)
    screens, teacher = pong_screens(rng, 256), Drifting()
    before = units_that_live(student, screens)
    for version in range(60):
        teacher.value = -0.03 * version
        for step in range(40 if version == 0 else 4):
            student.learn(screens[rng.integers(256, size=16)], teacher, renewed=step == 0)
    assert before > 100
    assert units_that_live(student, screens) > 0.45 * before


def test_without_observations_there_is_nothing_to_learn_from(small) -> None:
    for observations in (None, small.observations(small.flat, 0)):
        with pytest.raises(NeedsObservations, match="distill needs observations"):
            compress(Distiller(), small.policy(small.flat), Context(observations))
    assert Distiller().needs_observations


@pytest.mark.parametrize(
    ("last", "share"), [("fp16", 1e-3), ("bf16", 0.01), ("int8", 0.05), (None, 1e-5)]
)
def test_what_actors_run_after_each_swap_is_the_student_of_the_new_version(
    architecture, small, last, share
) -> None:
    student = smaller(architecture)
    observations = small.observations(architecture, 64)
    distiller = Distiller(student, steps=40, first_steps=60, learning_rate=1e-2)
    chain = CompressorChain().add(distiller)
    links = [f"distill={student.digest()}"]
    if last is not None:
        # int8 with the bits that this processor can add up
        chain.add(quantizer := Quantizer(last, calibrate_every=1))
        links.append(quantizer.id)
    chain.add(ONNX())
    assert chain.id == ">".join([*links, "onnx"])
    context = Context(observations)
    runtime = ArtifactPolicy(architecture)
    answers = []
    for version in (1, 2, 3):
        policy = small.policy(architecture, seed=version, version=version)
        artifact = chain.compress(policy, context)
        runtime.swap(artifact)
        assert artifact.at == policy.at
        expected, _ = outputs(student, context.memory(distiller.owner)["tensors"], observations)
        answers.append(runtime.logits(observations))
        assert np.abs(answers[-1] - expected).max() < share * np.abs(expected).max()
    # the students of two versions are further apart than that
    for one, other in itertools.pairwise(answers):
        assert np.abs(one - other).max() > 2 * share * np.abs(other).max()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"student": "accerl-nett1"}, r"'accerl-nett1' is unknown.*did you mean accerl-net1\?"),
        ({"student": "resnet"}, "'resnet' is unknown; expected one of nature,"),
        ({"student": "lstm-64"}, "student: 'lstm-64' is recurrent, .* unrolls carry no state"),
        ({"student": 4}, "student: expected one of nature, .*got 4"),
        ({"steps": 0}, "steps: expected a whole number ≥ 1, got 0"),
        ({"steps": 2.5}, r"steps: expected a whole number ≥ 1, got 2\.5"),
        ({"steps": "four"}, "steps: expected a whole number ≥ 1, got 'four'"),
        ({"batch": True}, "batch: expected a whole number ≥ 1, got True"),
        ({"renew_every": -1}, "renew_every: expected a whole number ≥ 1"),
        ({"first_steps": 0}, "first_steps: expected a whole number ≥ 1"),
        ({"learning_rate": 0.0}, "learning_rate: expected a number > 0"),
        ({"learning_rate": math.nan}, "learning_rate: expected a number > 0, got nan"),
        ({"budget_s": -1.0}, "budget_s: expected a number > 0"),
        ({"max_grad_norm": math.inf}, "max_grad_norm: expected a number > 0"),
        ({"value_cost": -0.5}, "value_cost: expected a number ≥ 0"),
        ({"entropy_cost": "some"}, "entropy_cost: expected a number ≥ 0"),
        ({"amp": "fp16"}, "amp: expected auto, bf16 or off, got 'fp16'"),
        ({"hidden": [16]}, "hidden: replaces widths of a preset; name a student"),
        ({"student": "nature", "hidden": [0]}, r"hidden: expected whole numbers ≥ 1, got \[0\]"),
        ({"student": "nature", "hidden": 16}, "hidden: expected whole numbers ≥ 1, got 16"),
        ({"student": "nature", "hidden": "16"}, "hidden: expected whole numbers ≥ 1, got '16'"),
    ],
)
def test_wrong_settings_are_refused_with_what_was_expected(arguments, reason) -> None:
    with pytest.raises(ChainError, match=f"distill: .*{reason}"):
        Distiller(**arguments)


def test_a_student_that_does_not_fit_the_policy_is_refused(small) -> None:
    graph = PolicyGraph(small.images)
    for student, reason in (
        ("nature", r"cannot see images of shape \(2, 12, 12\)"),
        (replace(small.images, actions=4), "4 actions, expected those of the policy, .* 3 actions"),
        (replace(small.images, observation_shape=(1, 12, 12)), r"\(1, 12, 12\) and 3 actions"),
        (replace(small.images, observation_dtype="float32"), "float32 observations"),
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


@pytest.mark.parametrize(
    ("item", "name", "widths"),
    [
        ("distill", "distill", (512,)),
        ({"distill": "accerl-net1"}, "distill=accerl-net1", (256,)),
        (
            {"distill": {"student": "accerl-net2", "hidden": [32, 16], "steps": 8}},
            "distill=accerl-net2-32-16",
            (32, 16),
        ),
    ],
)
def test_chains_name_students_by_their_presets(item, name, widths) -> None:
    from aclearn.policies import describe_architecture

    policy = describe_architecture(
        "nature", observation_shape=(4, 84, 84), observation_dtype="uint8", actions=6
    )
    chain = parse_chain([item, "onnx"])
    assert chain.id == f"{name}>onnx"
    assert chain.plan(policy).architecture.hidden == widths


def test_a_policy_given_to_it_is_never_its_students_memory(small) -> None:
    # the artifact's tensors are the caller's: training on must not move them, nor they the student
    context = Context(small.observations(small.flat, 16))
    distiller = Distiller(first_steps=1, steps=1)
    policy = small.policy(small.flat)
    first = compress(distiller, Policy(policy.graph, policy.tensors, policy.at), context)
    for tensor in first.tensors.values():
        assert tensor.flags.owndata and tensor.flags.c_contiguous
