"""Minibatches: every step once in a pass, in a new order; refusals; the early end."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.learning.batch import FrozenCorrection
from aclearn.learning.minibatches import Minibatches, random_orders
from aclearn.types import OBSERVATION
from correctors import Correction

T, B = 5, 4
BITS = 2 ** torch.arange(5)


def numbered(make, architecture, *, frozen: bool):
    """A batch whose rewards, masks (in bits) and whatever is frozen are numbers t · B + b."""
    numbers = torch.arange(T * B, dtype=torch.float32).view(T, B)
    observed = torch.arange((T + 1) * B).view(T + 1, B)
    masks = observed.unsqueeze(-1).bitwise_and(BITS) > 0
    batch = make.replace(make.batch(architecture, T, B, seed=1), rewards=numbers, masks=masks)
    if frozen:
        correction = Correction(numbers, numbers + 100, numbers + 200, numbers > 3, 0.5)
        shared = FrozenCorrection(correction, numbers + 300, numbers + 400)
        batch = make.replace(batch, frozen=shared)
    return batch


def split(batch, *, count: int, passes: int, seed: int = 7) -> Minibatches:
    orders = random_orders(batch, torch.Generator().manual_seed(seed))
    return Minibatches(batch, count=count, passes=passes, orders=orders)


def numbers_of(minibatches) -> list[int]:
    return [int(n) for m in minibatches for n in m.rewards[m.valid]]


@pytest.mark.parametrize("kind", ["flat", "images"])
def test_steps_of_a_frozen_batch_are_shuffled_anew_and_keep_what_belongs_to_them(make, kind):
    batch = numbered(make, getattr(make, kind), frozen=True)
    pixels = batch.observations[OBSERVATION]
    if kind == "images":  # as an assembled batch has them
        pixels = pixels.flatten(0, 1).to(memory_format=torch.channels_last).unflatten(0, (T + 1, B))
        batch = make.replace(batch, observations={OBSERVATION: pixels})
    made = list(split(batch, count=3, passes=2))
    valid = sorted(np.flatnonzero(batch.valid.numpy()).tolist())
    passes = [[m for index, m in made if index == wanted] for wanted in (0, 1)]
    orders = [numbers_of(each) for each in passes]
    assert [sorted(order) for order in orders] == [valid, valid]
    assert orders[0] != orders[1] and orders[0] != valid
    assert [len(each) for each in passes] == [3, 3]
    sizes = [m.valid.numel() for m in passes[0]]
    assert max(sizes) - min(sizes) <= 1
    for _, minibatch in made:
        numbers = minibatch.rewards
        steps = numbers.long().flatten()
        t, b = steps // B, steps % B
        assert minibatch.actions.shape == (1, len(steps)) and minibatch.all_valid
        assert torch.equal(minibatch.actions[0], batch.actions[t, b])
        assert torch.equal((minibatch.masks * BITS).sum(-1), numbers.long())
        observed = minibatch.observations[OBSERVATION][0]
        assert torch.equal(observed, pixels[t, b])
        if kind == "images":
            assert observed.is_contiguous(memory_format=torch.channels_last)
        frozen, correction = minibatch.frozen, minibatch.frozen.correction
        assert torch.equal(correction.targets, numbers)
        assert torch.equal(correction.advantages, numbers + 100)
        assert torch.equal(correction.weights, numbers + 200)
        assert torch.equal(correction.kept, numbers > 3)
        assert correction.advantage_scale == 0.5
        assert torch.equal(frozen.log_probs, numbers + 300)
        assert torch.equal(frozen.values, numbers + 400)
    assert numbers_of(m for _, m in split(batch, count=3, passes=2)) == orders[0] + orders[1]


def test_a_single_minibatch_of_a_frozen_batch_is_the_batch_itself(make) -> None:
    batch = numbered(make, make.flat, frozen=True)
    made = list(split(batch, count=1, passes=2))
    assert [index for index, _ in made] == [0, 1]
    for _, minibatch in made:
        assert minibatch.frozen is batch.frozen and minibatch.rewards is batch.rewards
        assert not minibatch.all_valid and torch.equal(minibatch.valid, batch.valid)
    whole = make.replace(batch, valid=torch.ones_like(batch.valid))
    parts = split(whole, count=1, passes=2)
    passes = iter(parts)
    _, first = next(passes)
    parts.refuse_unless(torch.tensor(False))
    _, second = next(passes)
    assert first.all_valid and not second.all_valid and not second.valid.any()


def test_traces_keep_their_environments_together(make) -> None:
    batch = numbered(make, make.flat, frozen=False)
    for _, minibatch in split(batch, count=2, passes=2):
        assert minibatch.actions.shape == (T, B // 2)
        assert torch.equal((minibatch.step_masks * BITS).sum(-1), minibatch.rewards.long())
        assert minibatch.masks.shape[0] == T + 1
        assert minibatch.rewards._base is not None  # a view: images are not copied


def test_sequences_of_a_policy_with_a_state_stay_whole_and_are_shuffled_anew(make) -> None:
    batch = numbered(make, make.remembering, frozen=True)
    made = list(split(batch, count=3, passes=2))
    passes = [[m for index, m in made if index == wanted] for wanted in (0, 1)]
    orders = []
    for each in passes:
        assert sorted(m.width for m in each) == [1, 1, 2]  # of 4 environments
        orders.append([int(b) for m in each for b in m.rewards[0]])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(B)) and orders[0] != orders[1]
    for _, minibatch in made:
        columns = minibatch.rewards[0].long()
        whole = batch.columns(columns)
        for name in ("actions", "rewards", "valid", "masks"):
            assert torch.equal(getattr(minibatch, name), getattr(whole, name))
        assert torch.equal(minibatch.observations[OBSERVATION], whole.observations[OBSERVATION])
        for part, expected in zip(minibatch.state, batch.state, strict=True):
            assert torch.equal(part, expected[columns])
        assert torch.equal(minibatch.frozen.correction.targets, minibatch.rewards)
        assert torch.equal(minibatch.frozen.log_probs, minibatch.rewards + 300)


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize(
    ("kind", "frozen"), [("flat", True), ("flat", False), ("remembering", True)]
)
def test_steps_of_a_refused_minibatch_are_not_in_later_passes(
    make, monkeypatch, kind, frozen, readable
) -> None:
    for module in ("decisions", "minibatches"):
        monkeypatch.setattr(f"aclearn.learning.{module}.readable", lambda device: readable)
    batch = numbered(make, getattr(make, kind), frozen=frozen)
    refused: list[int] = []
    later: list[int] = []
    minibatches = split(batch, count=2, passes=3)
    for at, (index, minibatch) in enumerate(minibatches):
        if at == 1:
            refused = numbers_of([minibatch])
        minibatches.refuse_unless(torch.tensor(at != 1))
        later += numbers_of([minibatch]) if index else []
    kept = sorted(set(np.flatnonzero(batch.valid.numpy())) - set(refused))
    assert sorted(later) == sorted(2 * kept)
    assert refused and kept


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(
    ("passes", "left"), [(3, [True] * 5 + [False]), (1, [False] * 2)], ids=("three", "one")
)
def test_an_end_leaves_out_what_follows_the_first_pass(make, frozen, passes, left) -> None:
    minibatches = split(numbered(make, make.flat, frozen=frozen), count=2, passes=passes)
    assert [minibatches.any_left for _ in minibatches] == left


def test_fewer_steps_than_minibatches_are_a_minibatch_each(make) -> None:
    batch = numbered(make, make.flat, frozen=True)
    sizes = [m.valid.numel() for _, m in split(batch, count=1000, passes=1)]
    assert sizes == [1] * int(batch.steps)
    nothing = make.replace(batch, valid=torch.zeros_like(batch.valid))
    assert [m.valid.numel() for _, m in split(nothing, count=2, passes=2)] == [0, 0]


@pytest.mark.parametrize("frozen", [True, False])
def test_the_errors_of_minibatches_are_put_back_to_their_steps(make, frozen) -> None:
    batch = numbered(make, make.flat, frozen=frozen)
    minibatches = split(batch, count=2, passes=2)
    for _, minibatch in minibatches:
        newest = minibatches.whole(minibatch.rewards + 0.5)
    assert newest.shape == (T, B)
    assert torch.equal(newest[batch.valid], batch.rewards[batch.valid] + 0.5)
    if frozen:
        assert newest[~batch.valid].isnan().all(), "no priority of a step that was not learned"
