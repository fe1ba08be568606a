"""The ring of records on disk."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from aclearn.errors import CheckpointError
from aclearn.runs import BatchRing, Record, files_of, read_file, starts_in


def record(number: int) -> Record:
    return Record(
        {"batch": number, "words": ["ä", None]},
        {
            "rows": np.full((3, 2), number, np.float32),
            "flags": np.array([True, False]),
            "none": np.zeros((0, 4), np.uint8),
            "one": np.array(number),
            "turned": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        },
    )


def fill(ring: BatchRing, count: int) -> None:
    for number in range(count):
        if ring.full:
            ring.begin(Record({"first": number}, {}))
        ring.append(record(number))


def numbers(folder: Path) -> list[list[int]]:
    """Numbers of the records of each file, which begins with that of its first."""
    found = []
    for file in files_of(folder):
        first, *others = read_file(file)
        mine = [each.data["batch"] for each in others]
        assert mine[:1] == [first.data["first"]]
        found.append(mine)
    return found


@pytest.mark.parametrize(("length", "count"), [(1, 1), (1, 5), (4, 3), (4, 6), (4, 25), (5, 40)])
def test_the_newest_records_stay_and_at_most_half_as_many_more(length, count, tmp_path) -> None:
    ring = BatchRing(tmp_path, 0, length)
    fill(ring, count)
    ring.close()
    [folder] = starts_in(tmp_path)
    there = [number for file in numbers(folder) for number in file]
    assert there == list(range(count - len(there), count)) and ring.records == len(there)
    in_a_file = -(-length // 2)
    assert min(length, count) <= len(there) <= 3 * in_a_file


def test_arrays_come_back_as_they_were_and_any_reader_of_safetensors_reads_them(tmp_path) -> None:
    ring = BatchRing(tmp_path, 0, 4)
    fill(ring, 1)
    ring.close()
    [file] = files_of(starts_in(tmp_path)[0])
    _, found = read_file(file)
    given = record(0)
    assert found.data == given.data and found.arrays.keys() == given.arrays.keys()
    for name, array in given.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)
    data = file.read_bytes()
    last = data[8 + int.from_bytes(data[:8], "little") :]
    assert safetensors.numpy.load(last[8:]).keys() == given.arrays.keys()


def test_more_arrays_than_one_call_writes_and_a_short_write_lose_nothing(
    tmp_path, monkeypatch
) -> None:
    whole = os.writev
    monkeypatch.setattr(
        os, "writev", lambda descriptor, buffers: whole(descriptor, [b"".join(buffers)[:1000]])
    )
    arrays = {f"a{number}": np.full(100, number, np.int32) for number in range(600)}
    ring = BatchRing(tmp_path, 0, 1)
    ring.begin(Record({}, arrays))
    ring.close()
    [found] = read_file(files_of(starts_in(tmp_path)[0])[0])
    assert all((found.arrays[f"a{number}"] == number).all() for number in range(600))


@pytest.mark.parametrize("cut", [1, 9, 60])
def test_a_last_record_whose_writer_was_killed_is_left_out(cut, tmp_path) -> None:
    ring = BatchRing(tmp_path, 0, 8)
    fill(ring, 3)
    ring.close()
    [file] = files_of(starts_in(tmp_path)[0])
    file.write_bytes(file.read_bytes()[:-cut])
    assert numbers(file.parent) == [[0, 1]]


@pytest.mark.parametrize("at", [8, 20, 40])
def test_a_damaged_file_is_refused_with_its_name(at, tmp_path) -> None:
    ring = BatchRing(tmp_path, 0, 8)
    fill(ring, 3)
    ring.close()
    [file] = files_of(starts_in(tmp_path)[0])
    data = bytearray(file.read_bytes())
    data[at : at + 4] = b"\xff\xff\xff\xff"
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"00000000\.batches is damaged"):
        list(read_file(file))


def test_the_ring_of_the_start_before_stays_and_older_ones_go(tmp_path) -> None:
    for generation in range(4):
        ring = BatchRing(tmp_path, generation, 2)
        fill(ring, 1)
        ring.close()
    assert [path.name for path in starts_in(tmp_path)] == ["000002", "000003"]
