"""Reads the files of Weights & Biases' offline mode."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def records(path: Path) -> Iterator[Any]:
    """The records of a .wandb file: LevelDB's log format behind seven bytes.

    A block of 32 KiB has parts of records, each behind a checksum, its length and its kind (1: a
    whole record, 2: the first part, 3: one between, 4: the last); fewer than seven bytes are left.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32_768 - at % 32_768 < 7:
            at += 32_768 - at % 32_768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if at + 7 + length > len(data):
            return  # it is being written
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(record)
            record = b""


def values(items: Any) -> dict[str, Any]:
    """Name → value of the items of a record."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
