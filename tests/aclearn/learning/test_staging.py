"""Batches on their way to a GPU: memory is reused only after its copy has ended."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.learning import assemble_batch
from aclearn.learning.staging import PinnedStaging, Staging
from aclearn.types import OBSERVATION, ObservationSpec
from tests.support.unrolls import random_unroll

T, B = 4, 3
FIELDS = ("actions", "behaviour_log_prob", "rewards", "terminated", "truncated", "valid")


class Copies:
    """A GPU's copies, simulated on the CPU: a copy reads its memory when it is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.ended = 0
        self.allocated: list[int] = []
        original, copies = torch.Tensor.copy_, self

        def copy_later(target, source, non_blocking=False):
            if not non_blocking:
                return original(target, source)
            copies.begun.append((target, source))
            return target

        def finish(count: int | None = None) -> None:
            """End the first `count` copies, in their order, as one stream does."""
            count = len(copies.begun) if count is None else count
            for target, source in copies.begun[copies.ended : count]:
                original(target, source)
            copies.ended = max(copies.ended, count)

        self.finish = finish
        monkeypatch.setattr(torch.Tensor, "copy_", copy_later)

    def allocate(self, size_bytes: int) -> torch.Tensor:
        self.allocated.append(size_bytes)
        return torch.full((size_bytes,), 255, dtype=torch.uint8)

    def staging(self) -> PinnedStaging:
        return PinnedStaging(
            torch.device("cpu"), allocate=self.allocate, make_event=lambda: Event(self)
        )


class Event:
    """Is over when every copy has ended that was begun before it was recorded."""

    def __init__(self, copies: Copies) -> None:
        self._copies, self._count = copies, 0

    def record(self) -> None:
        self._count = len(self._copies.begun)

    def synchronize(self) -> None:
        self._copies.finish(self._count)


@pytest.fixture
def copies(monkeypatch) -> Copies:
    return Copies(monkeypatch)


def _batch(seed: int, staging):
    unrolls = [random_unroll(seed, T, B), random_unroll(seed + 1, T, B)]
    spec = ObservationSpec.plain((2, 4, 5), "uint8", 2)
    return assemble_batch(unrolls, observation=spec, staging=staging)


def _assert_same(batch, expected) -> None:
    assert list(batch.observations) == list(expected.observations) == [OBSERVATION]
    for name in (*FIELDS, OBSERVATION):
        got, wanted = (
            made.observations[name] if name == OBSERVATION else getattr(made, name)
            for made in (batch, expected)
        )
        assert got.dtype == wanted.dtype
        assert got.stride() == wanted.stride()
        np.testing.assert_array_equal(got.cpu(), wanted, err_msg=name)
    assert batch.steps == expected.steps


def test_on_the_cpu_what_was_written_is_what_is_used() -> None:
    staging = Staging()
    array = staging.empty("rewards", (2, 3), np.float32)
    assert array.shape == (2, 3)
    assert staging.upload("rewards", array).data_ptr() == array.ctypes.data
    assert not np.shares_memory(array, staging.empty("rewards", (2, 3), np.float32))


def test_the_next_batch_waits_for_the_copy_of_the_one_before(copies) -> None:
    staging = copies.staging()
    first = _batch(1, staging)
    assert copies.ended == 0  # an upload with its own memory is not waited for
    second = _batch(3, staging)  # would overwrite what the first is still copied from
    assert copies.ended == len(FIELDS) + 1
    copies.finish()
    _assert_same(first, _batch(1, Staging()))
    _assert_same(second, _batch(3, Staging()))


def test_memory_grows_with_the_largest_array_and_serves_smaller_ones(copies) -> None:
    staging = copies.staging()
    for count, bytes_so_far in [(3, [12]), (5, [12, 20]), (2, [12, 20]), (5, [12, 20])]:
        array = staging.empty("x", (count,), np.float32)
        array[...] = np.arange(count)
        copy = staging.upload("x", array)
        copies.finish()
        np.testing.assert_array_equal(copy, np.arange(count, dtype=np.float32))
        assert copies.allocated == bytes_so_far


def test_an_array_from_elsewhere_is_not_needed_any_more_after_its_upload(copies) -> None:
    staging = copies.staging()
    array = np.array([[True, False], [False, True]])
    copy = staging.upload("valid", array)
    array[...] = True
    copies.finish()
    assert copy.tolist() == [[True, False], [False, True]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_two_batches_in_a_row_are_both_what_they_should_be() -> None:
    device = torch.device("cuda")
    staging, stream = PinnedStaging(device), torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # cycles: the copies of the first wait behind it
        batches = [_batch(seed, staging) for seed in (1, 3)]
    stream.synchronize()
    for batch, seed in zip(batches, (1, 3), strict=True):
        assert batch.observations[OBSERVATION].is_cuda
        _assert_same(batch, _batch(seed, Staging()))
