"""All weights of a version as one row of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]


def flat_size(shapes: Shapes) -> int:
    """Length of the row."""
    return sum(prod(shape) for shape in shapes.values())


def split_flat(flat: Any, shapes: Shapes) -> dict[str, Any]:
    """Views of a row `[flat_size(shapes)]`, an array or a tensor, by name and of these shapes."""
    tensors, start = {}, 0
    for name, shape in shapes.items():
        stop = start + prod(shape)
        tensors[name] = flat[start:stop].reshape(shape)
        start = stop
    return tensors
