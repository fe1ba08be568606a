"""What a student is trained on: observations, the teacher's answers, the budget."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from compress import (
    Context,
    PolicyGraph,
)
from compress.graphs.graph_network import GraphNetwork
from compress.methods.distiller import Distiller
from compress.methods.student import DistillationData
from tests.support.contexts import context_of, seen
from tests.support.distillation import pruned, smaller
from tests.support.random_policies import apply, reference


def test_data_are_by_the_original_and_serve_until_they_are_renewed(small) -> None:
    context = Context()
    distiller = Distiller(smaller(small.images), steps=1, first_steps=1, renew_every=3, amp="off")
    for version in range(1, 8):
        context.visited = seen(small.observations(small.images, 8, seed=version))
        context.begin(small.policy(small.images, seed=version, version=version))
        distiller.compress(pruned(context.original, small, 1), context)
        by = 1 + (version - 1) // 3 * 3  # 1, 1, 1, 4, 4, 4, 7
        visited = small.observations(small.images, 8, seed=by)
        (x,), logits, values, *_ = context.memory(distiller.state_key)["data"].part(np.arange(8))
        np.testing.assert_array_equal(x, visited)
        expected = reference(small.images, small.tensors(small.images, by), visited)
        np.testing.assert_allclose(logits, expected[0], rtol=0, atol=1e-5)
        np.testing.assert_allclose(values, expected[1], rtol=0, atol=1e-5)


def test_data_are_some_of_all_that_was_visited_and_a_new_student_s_first_of_ten_times(small):
    visited = small.observations(small.flat, 64)
    context, lengths, drawn = context_of(visited), [], set()
    distiller = Distiller(smaller(small.flat), steps=1, first_steps=1, observations=2)
    for _ in range(60):
        apply(distiller, small.policy(small.flat), context)
        data = context.memory(distiller.state_key)["data"]
        (x,), *_ = data.part(np.arange(len(data)))
        lengths.append(len(x))
        if len(lengths) > 1:
            drawn |= set(np.nonzero((visited[:, None] == x.numpy()).all(2))[0].tolist())
    assert lengths == [20] + 59 * [2]
    # of 64, 59 draws of two leave 64 · (62/64)^59 ≈ 10 unseen
    assert len(drawn) > 45


def test_data_of_few_observations_are_renewed_when_there_are_twice_as_many(small) -> None:
    context, taught = Context(), []
    distiller = Distiller(smaller(small.flat), steps=1, first_steps=1, renew_every=100)
    for count in (4, 7, 8, 15, 16, 16):
        context.visited = seen(small.observations(small.flat, count))
        apply(distiller, small.policy(small.flat), context)
        taught.append(len(context.memory(distiller.state_key)["data"]))
    assert taught == [4, 4, 8, 8, 16, 16]


def test_a_teacher_is_asked_once_of_each_observation_and_when_it_is_needed(small) -> None:
    architecture = small.images
    observations = small.observations(architecture, 8)
    tensors = small.tensors(architecture, 1)
    network = GraphNetwork(PolicyGraph(architecture)).load(tensors)
    asked = []

    def teacher(x):
        asked.append(len(x))
        return network(x)

    data = DistillationData(seen(observations), teacher, None)
    logits, values = reference(architecture, tensors, observations)
    for indices, new in (([5, 2], 2), ([2, 5], 0), ([7, 2, 0], 2), ([0], 0), (range(8), 4)):
        asked.clear()
        indices = np.array(indices)
        (x,), said, valued, *_ = data.part(indices)
        assert sum(asked) == new
        np.testing.assert_array_equal(x, observations[indices])
        np.testing.assert_allclose(said, logits[indices], rtol=0, atol=1e-5)
        np.testing.assert_allclose(valued, values[indices], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("time_limit_s", "first", "later"),
    [(None, 200, 20), (2.5, 25, 3), (0.5, 5, 1), (1e-9, 1, 1), (1e9, 200, 20)],
)
def test_a_budget_ends_the_training_after_the_step_in_which_it_is_used_up(
    small, time_limit_s, first, later
) -> None:
    ticks = itertools.count()  # a second passes between two readings of the clock
    context = context_of(small.observations(small.flat, 8), clock=lambda: float(next(ticks)))
    # a new student has ten times the steps and the time
    distiller = Distiller(smaller(small.flat), steps=20, time_limit_s=time_limit_s, batch=4)
    steps = []
    for version in (1, 2, 3):
        apply(distiller, small.policy(small.flat, version=version), context)
        steps.append(context.memory(distiller.state_key)["steps"])
    assert steps == [first, first + later, first + 2 * later]


def test_every_observation_is_seen_once_before_any_is_seen_again() -> None:
    def parts(count, size, passes):
        data = DistillationData(seen(np.arange(count, dtype=np.float32)[:, None]), Counting(), None)
        found = itertools.islice(data.parts(size, np.random.default_rng(0)), passes)
        for (x,), logits, values, *_ in found:
            # outputs belong to their observations
            np.testing.assert_array_equal(logits[:, 0], x[:, 0])
            np.testing.assert_array_equal(values, -x[:, 0])
            yield x[:, 0].tolist()

    batches = list(parts(10, 3, 6))
    assert [len(batch) for batch in batches] == [3] * 6
    for one_pass in (batches[:3], batches[3:]):
        places = [place for batch in one_pass for place in batch]
        assert len(set(places)) == 9 and max(places) < 10
    assert [sorted(batch) for batch in parts(2, 64, 2)] == [[0, 1], [0, 1]]


class Counting(torch.nn.Module):
    def forward(self, x):
        return x, -x[:, 0]
