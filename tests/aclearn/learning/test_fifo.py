"""The buffer of the newest steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from aclearn.learning.fifo import FifoBuffer
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
        valid_on_host=valid,
        versions=np.full((T, B), first),
    )


def test_the_newest_steps_stay_in_order(make) -> None:
    batches = [numbered(make, first) for first in range(0, 12, T)]
    buffer = FifoBuffer(batches[0], unrolls=2)
    assert buffer.push(batches[0]).steps == batches[0].steps, "empty steps are not valid"
    for before, batch in pairwise(batches):
        held = buffer.push(batch)
        both = [before, batch]
        for name in ("actions", "rewards", "terminated", "truncated", "valid"):
            expected = torch.cat([getattr(each, name) for each in both])
            assert torch.equal(getattr(held, name), expected)
        seen = [before.observations[OBSERVATION][:-1], batch.observations[OBSERVATION]]
        assert torch.equal(held.observations[OBSERVATION], torch.cat(seen))
        for name in ("valid_on_host", "versions"):
            expected = np.concatenate([getattr(each, name) for each in both])
            np.testing.assert_array_equal(getattr(held, name), expected)
        # each step is new once, also in minibatches
        assert held.new_steps == batch.steps
        assert sum(part.new_steps for part in held.cut(3)) == batch.steps
        batch.rewards.fill_(99.0)  # the environments' next steps overwrite it
        assert not (held.rewards == 99.0).any()
        batch.rewards.copy_(held.rewards[T:])


def test_a_saved_buffer_continues(make) -> None:
    batches = [numbered(make, first) for first in range(0, 12, T)]
    buffer, other = (FifoBuffer(batches[0], unrolls=3) for _ in range(2))
    for batch in batches[:2]:
        buffer.push(batch)
    other.load_state(buffer.state())
    one, two = buffer.push(batches[2]), other.push(batches[2])
    for name, value in vars(one).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, getattr(two, name)), name
    assert torch.equal(one.observations[OBSERVATION], two.observations[OBSERVATION])
    np.testing.assert_array_equal(one.versions, two.versions)
    np.testing.assert_array_equal(one.valid_on_host, two.valid_on_host)
