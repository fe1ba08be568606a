"""Unrolls side by side in a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aclearn.learning import assemble_batch
from aclearn.types import OBSERVATION, ObservationSpec, Unroll
from tests.support.unrolls import random_unroll


def _unroll(T: int, B: int, seed: int, *, image: bool) -> Unroll:
    return random_unroll(seed, T, B, frame=(1, 4, 5) if image else (3,))


IMAGES = ObservationSpec.plain((2, 4, 5), "uint8", 2)
FLAT = ObservationSpec.plain((3,), "float32")
_DTYPES = {
    "actions": torch.int64,
    "behaviour_log_prob": torch.float32,
    "rewards": torch.float32,
    "terminated": torch.bool,
    "truncated": torch.bool,
    "valid": torch.bool,
}


@pytest.mark.parametrize("image", [True, False])
def test_every_field_of_every_unroll_stands_in_its_columns(image: bool) -> None:
    widths = [2, 1, 3]
    unrolls = [_unroll(4, B, seed, image=image) for seed, B in enumerate(widths)]
    batch = assemble_batch(unrolls, observation=IMAGES if image else FLAT)
    assert batch.width == 6
    assert batch.steps == sum(int(unroll.valid.sum()) for unroll in unrolls)
    column = 0
    for unroll, B in zip(unrolls, widths, strict=True):
        for b in range(B):
            for name, dtype in _DTYPES.items():
                tensor = getattr(batch, name)
                assert tensor.dtype == dtype
                np.testing.assert_array_equal(tensor[:, column], getattr(unroll, name)[:, b])
            np.testing.assert_array_equal(batch.versions[:, column], unroll.versions)
            frames = unroll.observations[OBSERVATION][:, b]
            if image:
                older = np.concatenate([unroll.history[OBSERVATION][b][None], frames[:-1]])
                frames = np.concatenate([older, frames], axis=1)
            np.testing.assert_array_equal(
                batch.observations[OBSERVATION][:, column].numpy(), frames
            )
            column += 1


def test_images_lie_in_channels_last_memory() -> None:
    batch = assemble_batch([_unroll(3, 2, 0, image=True)], observation=IMAGES)
    pixels = batch.observations[OBSERVATION]
    assert pixels.shape == (4, 2, 2, 4, 5)
    flat = pixels.flatten(0, 1)
    assert flat.is_contiguous(memory_format=torch.channels_last)
    assert flat.data_ptr() == pixels.data_ptr()  # flattening makes no copy


def test_the_batch_may_be_made_of_read_only_arrays_of_a_message() -> None:
    unroll = _unroll(3, 2, 1, image=False)
    for _, array in unroll.arrays():
        array.flags.writeable = False
    batch = assemble_batch([unroll], observation=FLAT)
    np.testing.assert_array_equal(batch.rewards, unroll.rewards)


@pytest.mark.parametrize(("count", "widths"), [(1, [5]), (2, [2, 3]), (5, [1] * 5), (9, [1] * 5)])
def test_a_batch_is_cut_into_neighbouring_environments(count: int, widths: list[int]) -> None:
    unrolls = [_unroll(4, B, seed, image=True) for seed, B in enumerate([2, 3])]
    batch = assemble_batch(unrolls, observation=IMAGES)
    parts = batch.cut(count)
    assert [part.width for part in parts] == widths
    assert sum(part.steps for part in parts) == batch.steps
    for name in _DTYPES:
        joined = torch.cat([getattr(part, name) for part in parts], dim=1)
        np.testing.assert_array_equal(joined, getattr(batch, name))
    pixels = torch.cat([part.observations[OBSERVATION] for part in parts], dim=1)
    np.testing.assert_array_equal(pixels, batch.observations[OBSERVATION])
    versions = np.concatenate([part.versions for part in parts], axis=1)
    np.testing.assert_array_equal(versions, batch.versions)
    for part in parts:
        assert part.steps == int(part.valid.sum())


def test_an_episode_starts_after_each_step_that_was_a_reset(make) -> None:
    batch = make.batch(make.flat, 3, 2, seed=0)
    valid = torch.tensor([[True, False], [True, True], [False, True]])
    starts = replace(batch, valid=valid).starts
    assert starts.tolist() == [[False, False], [False, True], [False, False], [True, False]]
