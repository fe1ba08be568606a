"""A trainer's state as bytes, for the other ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

_LENGTH_BYTES = 8


def pack(tensors: Mapping[str, NDArray[Any]], state: Mapping[str, Any]) -> bytes:
    """Tensors and JSON-able values, for `unpack`."""
    text = json.dumps(state).encode()
    whole = {name: np.array(tensor, order="C") for name, tensor in tensors.items()}
    return len(text).to_bytes(_LENGTH_BYTES) + text + safetensors.numpy.save(whole)


def unpack(packed: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arguments of `pack`."""
    end = _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES])
    return safetensors.numpy.load(packed[end:]), json.loads(packed[_LENGTH_BYTES:end])
