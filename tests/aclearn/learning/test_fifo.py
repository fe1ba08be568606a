"""Batches of the newest steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from aclearn.learning import BatchSource, Fifo, StepAccount
from aclearn.types import OBSERVATION

T, B = 3, 4


def numbered(make, first: int):
    """Step t of a batch is number `first` + t; its first observation is the last of before."""
    batch = make.batch(make.flat, T, B, seed=first)
    rows = torch.arange(first, first + T + 1, dtype=torch.float32)
    valid = np.arange(first, first + T)[:, None] % 5 != np.arange(B)
    return replace(
        batch,
        observations={OBSERVATION: rows[:, None, None].expand(T + 1, B, 3).clone()},
        rewards=rows[1:, None].expand(T, B).clone(),
        valid=torch.from_numpy(valid),
        versions=np.full((T, B), first),
    )


class Given(BatchSource):
    """Gives these batches, then none."""

    def __init__(self, batches) -> None:
        self.batches = list(batches)

    def next(self, timeout_s, worker):
        return self.batches.pop(0) if self.batches else None


def take(fifo: Fifo):
    return fifo.next(0.0, SimpleNamespace())


def test_the_newest_steps_stay_in_order(make) -> None:
    batches = [numbered(make, first) for first in range(0, 12, T)]
    fifo = Fifo(Given(batches), StepAccount(), unrolls=2)
    assert take(fifo).steps == batches[0].steps, "empty steps are not valid"
    for before, batch in pairwise(batches):
        held = take(fifo)
        both = [before, batch]
        for name in ("actions", "rewards", "terminated", "truncated", "valid"):
            expected = torch.cat([getattr(each, name) for each in both])
            assert torch.equal(getattr(held, name), expected)
        seen = [before.observations[OBSERVATION][:-1], batch.observations[OBSERVATION]]
        assert torch.equal(held.observations[OBSERVATION], torch.cat(seen))
        versions = np.concatenate([each.versions for each in both])
        np.testing.assert_array_equal(held.versions, versions)
        # each step is new once, also in minibatches
        assert held.new_steps == batch.steps
        assert sum(part.new_steps for part in held.cut(3)) == batch.steps
        batch.rewards.fill_(99.0)  # the environments' next steps overwrite it
        assert not (held.rewards == 99.0).any()
        batch.rewards.copy_(held.rewards[T:])
    assert take(fifo) is None


def test_a_saved_buffer_continues_and_another_shape_begins_empty(make) -> None:
    batches = [numbered(make, first) for first in range(0, 12, T)]
    fifo = Fifo(Given(batches), StepAccount(), unrolls=3)
    for _ in batches[:2]:
        take(fifo)
    other, shorter = (
        Fifo(Given(batches[2:]), StepAccount(), unrolls=3),
        Fifo(Given(batches[2:]), StepAccount(), unrolls=2),
    )
    for later in (other, shorter):
        later.restore(fifo.state())
    # also if it was saved again before its first batch
    assert other.state().keys() == fifo.state().keys()
    one, two = take(fifo), take(other)
    for name, value in vars(one).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, getattr(two, name)), name
    assert torch.equal(one.observations[OBSERVATION], two.observations[OBSERVATION])
    np.testing.assert_array_equal(one.versions, two.versions)
    assert take(shorter).steps == batches[2].steps


def test_steps_of_a_batch_that_is_not_kept_are_dropped(make) -> None:
    account, batch = StepAccount(), numbered(make, 0)
    account.produced("actor", batch.steps)
    fifo = Fifo(
        Given([batch, replace(batch, rewards=batch.rewards[:, :1, None])]), account, unrolls=2
    )
    account.learned(int(take(fifo).new_steps))
    account.produced("actor", batch.steps)
    with pytest.raises(RuntimeError):
        take(fifo)
    assert account.dropped_steps == {"worker_failed": batch.steps}
    account.check()
