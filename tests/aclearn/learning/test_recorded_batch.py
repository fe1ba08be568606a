"""Batches that are made again of their recorded arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aclearn.errors import CheckpointError
from aclearn.learning import Batch, arrays_of, assemble_batch, batch_of
from aclearn.types import OBSERVATION, LeafSpec, ObservationSpec, Unroll
from tests.support.unrolls import random_unroll

_IMAGES = ObservationSpec({OBSERVATION: LeafSpec((2, 4, 5), "uint8", frame_stack=2)})
T = 6


class Assembles:
    """What a worker does here."""

    def assemble(self, unrolls, observation) -> Batch:
        return assemble_batch(unrolls, observation=observation)


def made_again(batch: Batch, observation: ObservationSpec) -> Batch:
    arrays, data = arrays_of(batch)
    # a reader gives them in any order
    shuffled = dict(sorted(arrays.items(), key=lambda item: hash(item[0])))
    return batch_of(shuffled, data, Assembles(), observation, torch.device("cpu"))


def check_equal(found: Batch, given: Batch) -> None:
    assert found.observations.keys() == given.observations.keys()
    pairs = list(zip(found.tensors, given.tensors, strict=True))
    assert len(pairs) > 7
    for mine, its in pairs:
        assert mine.dtype == its.dtype and mine.stride() == its.stride()
        assert torch.equal(mine, its)
    np.testing.assert_array_equal(found.versions, given.versions)
    np.testing.assert_array_equal(found.origins, given.origins)
    assert found.all_valid == given.all_valid


def unrolls() -> list[Unroll]:
    """Of two actors, with resets, and a state of twelve parts."""
    rng = np.random.default_rng(1)
    made = []
    for actor, width in enumerate((3, 2)):
        resets = np.array([width, 3 * width + 1], np.int32)
        made.append(
            random_unroll(
                actor,
                T,
                width,
                reset_index=resets,
                reset_history=rng.integers(0, 256, (2, 1, 4, 5), np.uint8),
                behaviour_parameters=rng.normal(size=(T, width, 4)).astype(np.float32),
                state=tuple(rng.normal(size=(width, 2)).astype(np.float32) for _ in range(12)),
                masks=rng.random((T + 1, width, 4)) < 0.5,
                actor=actor + 7,
                first_row=10 * actor,
            )
        )
    return made


def test_a_batch_of_unrolls_is_the_same_and_has_each_frame_once() -> None:
    batch = assemble_batch(unrolls(), observation=_IMAGES)
    batch = replace(batch, acting_log_prob=torch.rand(batch.valid.shape))
    check_equal(made_again(batch, _IMAGES), batch)
    arrays, _ = arrays_of(batch)
    frames = sum(array.size for name, array in arrays.items() if "/observations." in name)
    assert frames == (T + 1) * 5 * 20
    assert batch.origins.tolist() == [7 << 32, (7 << 32) + 1, (7 << 32) + 2,
                                      (8 << 32) + 10, (8 << 32) + 11]  # fmt: skip


def test_a_batch_of_tensors_is_the_same_in_their_order_in_memory() -> None:
    whole = assemble_batch(unrolls(), observation=_IMAGES)
    batch = replace(
        whole,
        unrolls=(),
        weights=torch.rand(whole.valid.shape),
        discounts=torch.rand(whole.valid.shape),
        new=whole.valid.clone(),
        all_valid=True,
    )
    assert not batch.observations[OBSERVATION].is_contiguous()
    check_equal(made_again(batch, _IMAGES), batch)
    check_equal(made_again(replace(batch, origins=None), _IMAGES), replace(batch, origins=None))


@pytest.mark.parametrize("gone", ["unroll/1/rewards", "unroll/0/observations.observation"])
def test_a_record_without_an_array_is_refused(gone) -> None:
    arrays, data = arrays_of(assemble_batch(unrolls(), observation=_IMAGES))
    del arrays[gone]
    with pytest.raises(CheckpointError, match="does not fit this run"):
        batch_of(arrays, data, Assembles(), _IMAGES, torch.device("cpu"))
