"""The loss of distillation, and the student: its gradients, its steps, its living units."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aclearn.distributions.torch_categorical import TorchCategorical
from aclearn.policies import describe_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import ObservationSpec
from compress import PolicyGraph
from compress.graphs.graph_network import GraphNetwork
from compress.methods.student import (
    DistillationData,
    Lessons,
    Student,
    distillation_loss,
    first_tensors,
    one_signed_layers,
)
from tests.support.architectures import altered
from tests.support.contexts import seen
from tests.support.distillation import kl_by_loops, silenced
from tests.support.random_policies import reference


def all_of(observations, teacher, amp_dtype=None):
    """All observations, with the teacher's outputs."""
    return DistillationData(seen(observations), teacher, amp_dtype).part(
        np.arange(len(observations))
    )


def student_of(graph, tensors, **changes):
    settings = {
        "learning_rate": 1e-3, "value_cost": 0.5, "entropy_cost": 0.0, "max_grad_norm": 1.0,
        "amp_dtype": None,
    }  # fmt: skip
    return Student(graph, tensors, **settings | changes)


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
        student=TorchCategorical(torch.tensor(logits)),
        values=torch.tensor(values),
        teacher=TorchCategorical(torch.tensor(teacher_logits)),
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
        student=TorchCategorical(logits),
        values=values,
        teacher=TorchCategorical(teacher_logits),
        teacher_values=teacher_values,
    ).total.backward()
    expected = (logits.detach().softmax(1) - teacher_logits.softmax(1)) / 4
    np.testing.assert_allclose(logits.grad.numpy(), expected.numpy(), atol=1e-6)
    np.testing.assert_allclose(values.grad.numpy(), np.arange(4.0) / 4, atol=1e-6)


def test_masked_actions_are_not_learned_and_do_not_count(small) -> None:
    rng = np.random.default_rng(2)
    graph, observations = PolicyGraph(small.flat), small.observations(small.flat, 6)
    tensors = small.tensors(small.flat, 3)
    masks = np.ones((6, small.flat.action_spec.mask_width), np.bool_)
    masks[:, 1] = False
    masks[:3, 2] = False
    teacher_logits = rng.normal(size=masks.shape).astype(np.float32)
    teacher_logits[:, 1] += 100
    teacher_logits[:3, 2] += 100
    logits, values = reference(small.flat, tensors, observations)
    student = student_of(graph, tensors, learning_rate=1e-2, value_cost=0.0, entropy_cost=0.1)
    lessons = Lessons(
        (torch.from_numpy(observations),),
        torch.from_numpy(teacher_logits),
        torch.from_numpy(values).float(),
        torch.from_numpy(masks),
    )
    loss = student.learn(lessons)
    rows = [(teacher_logits[None, b, m], logits[None, b, m]) for b, m in enumerate(masks)]
    expected = np.mean([kl_by_loops(teacher, mine) for teacher, mine in rows])
    assert float(loss.kl) == pytest.approx(expected, rel=1e-4)
    learned = student.tensors()
    for name in ("policy.weight", "policy.bias"):
        np.testing.assert_array_equal(learned[name][1], tensors[name][1])
        assert (learned[name][2] != tensors[name][2]).any()


def test_values_that_differ_by_less_than_bf16_tells_apart_are_learned_in_bf16(small) -> None:
    # only the values' biases are left; in bf16 100.3 would be 100.5
    graph = PolicyGraph(small.images)
    zeros = {n: np.zeros(s.shape, s.dtype) for n, s in graph.tensors(with_value=True).items()}
    teacher, mine = (
        {**zeros, "value.bias": np.array([value], np.float32)} for value in (100.3, 100.0)
    )
    student = student_of(graph, mine, amp_dtype=torch.bfloat16)
    network = GraphNetwork(graph).load(teacher)
    loss = student.learn(all_of(small.observations(small.images, 6), network, torch.bfloat16))
    assert float(loss.value) == pytest.approx(0.3**2, rel=1e-3)
    assert float(loss.kl) == 0.0


def test_a_student_that_has_nothing_to_learn_is_not_dead(small) -> None:
    graph, tensors = PolicyGraph(small.images), small.policy(small.images).tensors
    student = student_of(graph, tensors, value_cost=0.0)
    observations = small.observations(small.images, 8)
    # both so certain of an action that float32 has no other: the gradient is exactly zero
    sure = tensors | {"policy.bias": np.float32([300.0, 0.0, 0.0])}
    student.network.load(sure)
    student.learn(all_of(observations, GraphNetwork(graph).load(sure)))
    assert all(not parameter.grad.any() for parameter in student.network.policy.parameters())
    assert student.alive
    student.network.load(tensors)
    other = small.policy(small.images, seed=5).tensors
    student.learn(all_of(observations, GraphNetwork(graph).load(other)))
    assert student.alive
    student.network.load(silenced(tensors))
    student.learn(all_of(observations, GraphNetwork(graph).load(other)))
    assert not student.alive
    # black screens, as at the start of a game: units silent there may be active elsewhere
    student.learn(all_of(np.zeros_like(observations), GraphNetwork(graph).load(other)))
    assert student.alive


_HIDDEN = ["hidden.0", "hidden.1"]


@pytest.mark.parametrize(
    ("name", "activation", "expected"),
    [
        ("images", "relu", ["convolutions.0", "convolutions.1", *_HIDDEN]),
        # of the others only pixels are never negative
        ("images", "tanh", ["convolutions.0"]),
        ("flat", "tanh", []),
        ("flat", "relu", ["hidden.1", "value_hidden.1"]),
        # not what opens a later section: it reads a sum
        (
            "residual",
            "relu",
            [
                "sections.0.convolution",
                *(f"sections.0.blocks.{i}.{end}" for i in (0, 1) for end in ("first", "second")),
                *(f"sections.1.blocks.0.{end}" for end in ("first", "second")),
                *_HIDDEN,
            ],
        ),
    ],
)
def test_layers_that_read_nothing_negative_are_known(small, name, activation, expected) -> None:
    architecture = altered(getattr(small, name), activation=activation)
    assert list(one_signed_layers(PolicyGraph(architecture))) == expected


def test_gradients_are_centred_where_inputs_have_one_sign_and_nowhere_else(small) -> None:
    architecture, learner = small.images, small.policy(small.images, seed=7).tensors
    observations = small.observations(architecture, 8)
    teacher = small.policy(architecture, seed=8).tensors
    student = student_of(PolicyGraph(architecture), learner, max_grad_norm=1e9)
    student.learn(all_of(observations, GraphNetwork(PolicyGraph(architecture)).load(teacher)))
    # the same gradient from the trainer's module and the loss in its own words
    network = PolicyNetwork(architecture, seed=0)
    load_tensors(network, learner)
    logits, values = network(torch.from_numpy(observations))
    (teacher_logits, teacher_values) = (
        torch.tensor(x) for x in reference(architecture, teacher, observations)
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


class Drifting(torch.nn.Module):
    """A teacher of the first minutes: it acts alike everywhere, and all its values fall."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self._noise = 0.0, torch.Generator().manual_seed(0)

    def forward(self, x):
        return torch.zeros(len(x), 6), self.value + 0.05 * torch.randn(
            len(x), generator=self._noise
        )


def pong_screens(rng, count):
    """Two paddles and a ball on a bright ground: two screens differ in few pixels."""
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
    """Number of units of the last hidden layer that are active on some screen."""
    found = []
    hidden = student.network.get_submodule("hidden.0")
    hook = hidden.register_forward_hook(lambda module, given, made: found.append(made))
    with torch.no_grad():
        student.network(torch.from_numpy(screens))
    hook.remove()
    return int((found[0] > 0).any(0).sum())


def test_a_student_keeps_its_units_while_its_teacher_s_values_drift() -> None:
    # without centred gradients and an immediate value step only a quarter of them is left
    architecture = describe_architecture(
        "accerl-net1", observation=ObservationSpec.plain((4, 84, 84), "uint8"), actions=6
    )
    first = first_tensors(architecture, seed=1)
    student = student_of(PolicyGraph(architecture), first, learning_rate=5e-4)
    rng = np.random.default_rng(1)
    screens, teacher = pong_screens(rng, 256), Drifting()
    before = units_that_live(student, screens)
    for version in range(60):
        teacher.value = -0.03 * version
        for step in range(40 if version == 0 else 4):
            seen = screens[rng.integers(256, size=16)]
            student.learn(all_of(seen, teacher), renewed=step == 0)
    assert before > 100
    assert units_that_live(student, screens) > 0.45 * before
