"""Students of policies with a memory: they learn along sequences, each with its own state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.policies import describe_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import ObservationSpec
from compress import ArtifactRuntime, ChainError, Context, Distiller, PolicyGraph, parse_chain
from compress.graphs.graph_network import GraphNetwork
from compress.methods.student import DistillationData, Student
from tests.support.distillation import kl_by_loops
from tests.support.random_policies import apply
from tests.support.sequences import (
    recurrent,
    remembering,
    sequences,
    step_of,
    torch_step,
    walked,
)

_KINDS = pytest.mark.parametrize("kind", ["lstm", "gru"])


def _student(policy, seed):
    how = {"learning_rate": 1e-3, "value_cost": 0.0, "entropy_cost": 0.0, "max_grad_norm": 1e9}
    start = remembering(policy.graph.architecture, seed=seed).tensors
    return Student(policy.graph, start, **how, amp_dtype=None), start


@_KINDS
def test_the_loss_and_its_gradient_are_those_of_both_states_ways_through_the_sequences(
    kind,
) -> None:
    policy = remembering(recurrent(kind))
    architecture = policy.graph.architecture
    rng = np.random.default_rng(2)
    state = tuple(rng.normal(size=(4, 8)).astype(np.float32) for _ in architecture.state)
    visited = sequences(architecture, count=4, state=state)
    data = DistillationData(visited, GraphNetwork(policy.graph).load(policy.tensors), None)
    student, start = _student(policy, 7)
    loss = student.learn([data.part(np.arange(4))])
    teacher = walked(torch_step(policy), visited, state)
    # the student step by step in the trainer's module, with gradients
    network = PolicyNetwork(architecture)
    load_tensors(network, dict(start))

    def step(leaves, before):
        before = tuple(torch.as_tensor(part) for part in before)
        output = network.step({n: torch.from_numpy(x) for n, x in leaves.items()}, before)
        rows.append(output.parameters[0])
        return output.parameters.detach().numpy(), output.state

    rows: list[torch.Tensor] = []
    walked(step, visited, state)
    logits = torch.stack(rows)[torch.from_numpy(visited.valid)]
    assert float(loss.kl) == pytest.approx(kl_by_loops(teacher, logits.detach().numpy()), rel=1e-4)
    p = torch.from_numpy(teacher).softmax(1)
    (p * (p.log() - logits.log_softmax(1))).sum(1).mean().backward()
    for name in ("memory.0.recurrent.weight", "memory.0.input.weight", "policy.weight"):
        expected = network.get_parameter(name).grad
        found = student.network.get_parameter(name).grad
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_a_teacher_is_asked_once_of_each_sequence_and_batches_are_whole_sequences() -> None:
    policy = remembering(recurrent("gru"))
    visited = sequences(policy.graph.architecture, count=5, length=4)
    network = GraphNetwork(policy.graph).load(policy.tensors)
    asked, unrolled = [], network.unrolled
    network.unrolled = lambda *leaves, **given: (  # type: ignore[method-assign]
        asked.append(len(leaves[0])) or unrolled(*leaves, **given)
    )
    data = DistillationData(visited, network, None)
    lessons = data.part(np.array([3, 1]))
    np.testing.assert_array_equal(
        lessons.leaves[0], visited.take([3, 1]).observations["observation"]
    )
    expected = walked(torch_step(policy), visited)
    whole = np.full((20, 4), np.nan, np.float32)
    whole[visited.valid] = expected
    rows = np.r_[12:16, 4:8][visited.valid[np.r_[12:16, 4:8]]]
    np.testing.assert_allclose(
        lessons.parameters.numpy()[lessons.along.valid], whole[rows], rtol=1e-4, atol=1e-5
    )
    data.part(np.array([1, 0]))
    assert asked == [8, 4]
    parts = data.parts(11, np.random.default_rng(0))
    assert [len(next(parts).parameters) for _ in range(4)] == [8] * 4


@_KINDS
def test_a_student_with_a_memory_comes_near_and_one_without_cannot(kind, caplog) -> None:
    policy = remembering(recurrent(kind, hidden=(16,), separate_value=False))
    architecture = policy.graph.architecture
    visited = sequences(architecture, 60, 10, seed=1)
    others = sequences(architecture, 20, 10, seed=2)
    kls = {}
    for memory in (True, False):
        training = {"first_steps": 150, "batch": 200, "learning_rate": 0.01, "value_cost": 0.0}
        student = {"student": "mlp", "hidden": [16], "memory": memory, **training}
        chain = parse_chain([{"distill": student}, "onnx"], fidelity_observations=200)
        context = Context(visited, others, seed=1)
        for _ in range(2):  # the warning comes once
            artifact = chain.compress(policy, context)
        kls[memory] = artifact.fidelity.kl_mean
        assert artifact.graph == chain.plan(architecture)
        assert artifact.graph.state == (architecture.state if memory else ())
        # of equal shapes too: what a student remembers means nothing to the policy
        assert not artifact.graph.keeps_state(architecture.state)
        executable = ArtifactRuntime(architecture).load(artifact)
        found, expected = (
            walked(step, others) for step in (step_of(executable), torch_step(policy))
        )
        assert artifact.fidelity.kl_mean == pytest.approx(kl_by_loops(expected, found), rel=1e-3)
    assert kls[True] < 0.5 * kls[False]
    said = [record for record in caplog.records if "student_without_memory" in record.message]
    assert len(said) == 1 and "distill=mlp-16-memoryless" in said[0].message


def test_student_and_teacher_begin_with_zeros_also_where_their_shapes_are_the_same() -> None:
    policy = remembering(recurrent("lstm", hidden=(16,)))
    state = tuple(np.full((6, 8), 9.0, np.float32) for _ in range(2))
    training = {"steps": 1, "first_steps": 1}
    for settings in ({"student": "mlp"}, {}):
        link = Distiller(**settings, **training)
        context = Context(sequences(policy.graph.architecture, state=state), seed=1)
        found = apply(link, policy, context)
        assert not found.graph.keeps_state(policy.graph.state)
        lessons = context.memory(link.state_key)["data"].part(np.arange(6))
        assert lessons.along.state == ()


def test_a_named_student_is_planned_on_the_policy_and_not_on_links_that_do_not_run() -> None:
    architecture = recurrent("gru", hidden=(16,))
    student = {"distill": {"student": "mlp", "hidden": [8], "steps": 1, "first_steps": 1}}
    chain = parse_chain([{"prune": 0.5}, student, "onnx"])
    policy = remembering(architecture)
    artifact = chain.compress(policy, Context(sequences(architecture), seed=1))
    assert artifact.graph == chain.plan(architecture)
    assert artifact.graph.state == (8,)


def test_a_pruned_memory_is_trained_on_with_its_own_narrow_state() -> None:
    policy = remembering(recurrent("lstm", size=16))
    architecture = policy.graph.architecture
    visited, others = (sequences(architecture, 60, 10, seed=i) for i in (1, 2))
    kls = []
    for links in ([], [{"distill": {"first_steps": 100, "learning_rate": 5e-3, "batch": 100}}]):
        chain = parse_chain([{"prune": {"sparsity": 0.5, "compensate": False}}, *links, "onnx"])
        artifact = chain.compress(policy, Context(visited, others, seed=1))
        assert artifact.graph.state == (8, 8)
        kls.append(artifact.fidelity.kl_mean)
    assert kls[1] < 0.5 * kls[0]


def test_a_memory_is_asked_of_a_named_student_only() -> None:
    with pytest.raises(ChainError, match=r"memory: is that of a preset; name a student"):
        Distiller(memory=False)


def test_students_of_a_policy_without_memory_have_none() -> None:
    space = ObservationSpec.plain((3,), "float32")
    plain = describe_architecture("mlp", observation=space, actions=4)
    assert Distiller("mlp", hidden=[8]).plan(PolicyGraph(plain)).state == ()
