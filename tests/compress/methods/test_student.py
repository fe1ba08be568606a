"""The loss of distillation, and the student: its gradients, its steps, its living units."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aclearn.distributions.torch_categorical import TorchCategorical
from aclearn.policies.network import PolicyNetwork, load_tensors, tensors_of
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
    loss = student.learn([lessons])
    rows = [(teacher_logits[None, b, m], logits[None, b, m]) for b, m in enumerate(masks)]
    expected = np.mean([kl_by_loops(teacher, mine) for teacher, mine in rows])
    assert float(loss.kl) == pytest.approx(expected, rel=1e-4)
    learned = student.tensors()
    for name in ("policy.weight", "policy.bias"):
        np.testing.assert_array_equal(learned[name][1], tensors[name][1])
        assert (learned[name][2] != tensors[name][2]).any()


def test_a_student_that_has_nothing_to_learn_is_not_dead(small) -> None:
    graph, tensors = PolicyGraph(small.images), small.policy(small.images).tensors
    student = student_of(graph, tensors, value_cost=0.0)
    observations = small.observations(small.images, 8)
    # both so certain of an action that float32 has no other: the gradient is exactly zero
    sure = tensors | {"policy.bias": np.float32([300.0, 0.0, 0.0])}
    student.network.load(sure)
    student.learn([all_of(observations, GraphNetwork(graph).load(sure))])
    assert all(not parameter.grad.any() for parameter in student.network.policy.parameters())
    assert student.alive
    student.network.load(tensors)
    other = small.policy(small.images, seed=5).tensors
    student.learn([all_of(observations, GraphNetwork(graph).load(other))])
    assert student.alive
    student.network.load(silenced(tensors))
    student.learn([all_of(observations, GraphNetwork(graph).load(other))])
    assert not student.alive
    # black screens, as at the start of a game: units silent there may be active elsewhere
    student.learn([all_of(np.zeros_like(observations), GraphNetwork(graph).load(other))])
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
    student.learn([all_of(observations, GraphNetwork(PolicyGraph(architecture)).load(teacher))])
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


def test_the_critic_of_a_new_student_does_not_begin_small(small) -> None:
    first, network = (
        first_tensors(small.images, seed=1), tensors_of(PolicyNetwork(small.images, seed=1))
    )  # fmt: skip
    for name, tensor in network.items():
        scale = np.float32(100.0 if name == "value.weight" else 1.0)  # of a gain of 0.01
        np.testing.assert_allclose(first[name], scale * tensor, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["flat", "images"])
def test_workers_make_the_step_of_one_on_all_their_batches(small, kind) -> None:
    architecture = getattr(small, kind)
    graph, observations = PolicyGraph(architecture), small.observations(architecture, 12)
    data = DistillationData(
        seen(observations), GraphNetwork(graph).load(small.tensors(architecture, 7)), None
    )
    found = []
    for count in (1, 3):
        student = student_of(graph, small.tensors(architecture, 8), workers=3)
        parts = np.array_split(np.arange(12), count)
        loss = student.learn([data.part(part) for part in parts])
        parameters = list(student.network.parameters())
        found.append((float(loss.total), [parameter.grad for parameter in parameters]))
        # the fused Adam reads both in memory order
        assert all(each.grad.stride() == each.stride() for each in parameters)
    (together, gradients), (apart, mean) = found
    assert apart == pytest.approx(together, rel=1e-5)
    torch.testing.assert_close(mean, gradients, rtol=1e-4, atol=1e-6)
