"""A ring of files with a trainer's newest records; each file begins with what these follow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from aclearn.errors import CheckpointError
from aclearn.files import open_to_write
from aclearn.runs.atomic_file import write_all

#: The folder of the rings in a run's: `<policy>/<generation>/<number>.batches`.
RING_FOLDER: Final = "flight_recorder"
_SUFFIX: Final = ".batches"
#: Complete files beside the one that is being written. Half as many batches are in each as are
#: kept, so that the ring has these and at most half as many more.
_COMPLETE: Final = 2
#: Rings of one policy: of the present start of the trainer, and of the one before. An error may
#: have ended that one.
_STARTS_KEPT: Final = 2
_LENGTH_BYTES: Final = 8
#: Most buffers of one `writev`, below the limit of any system.
_MOST_BUFFERS: Final = 512
_DTYPES: Final = {
    np.dtype(name): code
    for name, code in {
        "bool": "BOOL",
        **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
        **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    }.items()
}


class Record(NamedTuple):
    """Named arrays, and what JSON can hold."""

    data: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class BatchRing:
    """Writes records; the newest `length` of them stay. For one thread at a time.

    A file is a row of records, each a length (8 bytes, little-endian) and a file of safetensors of
    that length. Nothing is flushed to the disk itself: the ring outlives its process, but perhaps
    not its machine.

    Args:
        folder: of one policy's rings in a run.
        generation: of the trainer, whose ring is new.
        length: number of records that are kept.
    """

    def __init__(self, folder: Path, generation: int, length: int) -> None:
        self._rings, self._folder = folder, folder / f"{generation:06d}"
        self._most = -(-length // _COMPLETE)
        self._in_files: dict[Path, int] = {}  # file → its records, the oldest first
        self._descriptor: int | None = None

    @property
    def records(self) -> int:
        """Number of records that are there."""
        return sum(self._in_files.values())

    @property
    def full(self) -> bool:
        """Whether the next record needs another file, which `begin` makes."""
        return self._descriptor is None or next(reversed(self._in_files.values())) >= self._most

    def begin(self, first: Record) -> int:
        """Begin another file with what its records follow, and forget the oldest; the bytes of it.

        Raises:
            OSError: of the disk.
        """
        if not self._in_files:
            self._folder.mkdir(parents=True, exist_ok=True)
            for old in starts_in(self._rings)[:-_STARTS_KEPT]:
                _remove_ring(old)
        self.close()
        while len(self._in_files) > _COMPLETE:
            oldest = next(iter(self._in_files))
            oldest.unlink(missing_ok=True)
            del self._in_files[oldest]
        newest = next(reversed(self._in_files), None)
        number = 0 if newest is None else int(newest.stem) + 1
        path = self._folder / f"{number:08d}{_SUFFIX}"
        self._descriptor = open_to_write(path, os.O_TRUNC)
        self._in_files[path] = 0
        return _write(self._descriptor, first)

    def append(self, record: Record) -> int:
        """Write a record, unless `full`; its bytes.

        Raises:
            OSError: of the disk.
        """
        assert self._descriptor is not None
        written = _write(self._descriptor, record)
        self._in_files[next(reversed(self._in_files))] += 1
        return written

    def bytes_of(self, record: int, first: int) -> int:
        """Bytes of the full ring, of records and beginnings of this size."""
        return (_COMPLETE + 1) * (self._most * record + first)

    def remove(self) -> None:
        """Give the disk's space back."""
        self.close()
        _remove_ring(self._folder)
        self._in_files.clear()

    def close(self) -> None:
        """Close the file; the ring stays."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def starts_in(folder: Path) -> list[Path]:
    """The rings of one policy, by generation of the trainer."""
    return sorted(path for path in folder.glob("*") if path.is_dir() and path.name.isdigit())


def files_of(ring: Path) -> list[Path]:
    """The files of a ring, the oldest first."""
    return sorted(ring.glob(f"*{_SUFFIX}"))


def read_file(path: Path) -> Iterator[Record]:
    """The records of a ring's file; the first is what the others follow.

    A last one of which a part is missing, since its writer was killed, is left out.

    Raises:
        CheckpointError: it cannot be read, or is damaged.
    """
    try:
        with path.open("rb") as file:
            while len(head := file.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
                length = int.from_bytes(head, "little")
                if length > os.fstat(file.fileno()).st_size - file.tell():
                    return
                yield _record(file.read(length))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror})") from error
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


def _record(blob: bytes) -> Record:
    arrays = safetensors.numpy.load(blob)
    header = json.loads(blob[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(blob[:8], "little")])
    data = json.loads(header["__metadata__"]["data"])
    if not isinstance(data, dict):
        raise ValueError("a record's data are no mapping")
    return Record(data, arrays)


def _write(descriptor: int, record: Record) -> int:
    """Write a record without a copy of its arrays; its bytes."""
    arrays = [
        array if array.flags.c_contiguous else np.array(array, order="C")
        for array in record.arrays.values()
    ]
    forms = tuple(
        (name, array.dtype, array.shape) for name, array in zip(record.arrays, arrays, strict=True)
    )
    data = json.dumps(json.dumps(record.data))
    text = f'{{"__metadata__":{{"data":{data}}}{_described(forms)}}}'.encode()
    text += b" " * (-len(text) % 8)
    length = _LENGTH_BYTES + len(text) + sum(array.nbytes for array in arrays)
    head = length.to_bytes(8, "little") + len(text).to_bytes(8, "little") + text
    _write_all(descriptor, [head, *arrays])
    return _LENGTH_BYTES + length


@lru_cache(maxsize=16)
def _described(forms: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]) -> str:
    """The entries of arrays in a header of safetensors; those of most batches are the same."""
    text, end = "", 0
    for name, dtype, shape in forms:
        begin, end = end, end + dtype.itemsize * prod(shape)
        entry = {"dtype": _DTYPES[dtype], "shape": shape, "data_offsets": (begin, end)}
        text += f",{json.dumps(name)}:{json.dumps(entry)}"
    return text


def _write_all(descriptor: int, buffers: Sequence[Any]) -> None:
    for first in range(0, len(buffers), _MOST_BUFFERS):
        some = buffers[first : first + _MOST_BUFFERS]
        written = os.writev(descriptor, some)
        if written < sum(memoryview(each).nbytes for each in some):  # a nearly full disk
            write_all(descriptor, memoryview(b"".join(some))[written:])


def _remove_ring(ring: Path) -> None:
    for file in files_of(ring):
        file.unlink(missing_ok=True)
    if ring.is_dir() and not any(ring.iterdir()):
        ring.rmdir()
